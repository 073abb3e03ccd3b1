"""Replication: a master sends its log, a replica follows it and reports what it has."""
