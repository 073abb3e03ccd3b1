"""`rmq bench`: measures sends and reads."""
