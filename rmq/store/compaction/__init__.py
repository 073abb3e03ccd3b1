"""Compaction topics, which keep the last message of each key."""
