"""Processors of the RocketMQ protocol, registered as ordinary plugins."""
