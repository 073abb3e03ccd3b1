"""`rmq sql`: SQL over stores, archives and live topics, by DuckDB."""
