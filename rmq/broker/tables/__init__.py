"""Persistent tables in RocketMQ's JSON files."""
