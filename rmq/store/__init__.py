"""Files: commit log, consume queues, checkpoint, recovery."""
