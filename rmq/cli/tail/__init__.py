"""`rmq tail`: shows what happens on running brokers."""
