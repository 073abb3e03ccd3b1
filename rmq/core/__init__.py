"""The ground floor: clock, threads, files, logs, addresses and texts for people."""
