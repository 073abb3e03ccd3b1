"""Reading the log: its segments, ranges of them, and their Arrow batches."""
