"""The log, its queues and its index, in memory and in mapped files."""
