"""`rmq doctor`: checks of configuration, machine and running brokers."""
