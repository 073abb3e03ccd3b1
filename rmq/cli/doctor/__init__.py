"""`rmq doctor`: checks configuration, machine and running brokers."""
