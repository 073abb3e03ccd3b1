"""`rmq request`: sends requests."""
