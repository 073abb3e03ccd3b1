"""`rmq consume`: shows messages of a topic."""
