"""`rmq demo`: a broker with traffic, to look at."""
