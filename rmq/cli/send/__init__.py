"""`rmq send`: sends messages."""
