"""SQL over the log of a store, by DuckDB: `rmq sql`."""
