"""`rmq health`: asks a server of this machine whether it answers."""
