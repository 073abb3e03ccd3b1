"""`rmq config`: checks, prints and documents configurations."""
