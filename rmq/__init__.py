"""rmq: a RocketMQ-compatible message broker and name server."""

__version__ = "0.1.0"
