"""A group of brokers: replication of the log, roles, controllers, recovery."""
