"""RocketMQ's log as DataFrames, streams and exported tables."""
