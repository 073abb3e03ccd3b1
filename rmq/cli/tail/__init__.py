"""`rmq tail`: shows the events of running brokers."""
