"""`rmq reply`: answers requests."""
