"""`rmq top`: the state of brokers on a full screen."""
