"""Facts about a running broker that only time shows, and the problems in them."""
