"""`rmq store`: shows, checks and repairs stores."""
