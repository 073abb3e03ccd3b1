"""Compiled handlers: sends, pulls, acks, commits, heartbeats."""
