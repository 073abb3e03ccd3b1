"""The lowest layer: clock, threads, files, logs, addresses and texts for people."""
