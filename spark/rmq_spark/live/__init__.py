"""Reading topics of running brokers by pulls."""
