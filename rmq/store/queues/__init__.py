"""Consume queues: their entries, files, ends and flushes."""
