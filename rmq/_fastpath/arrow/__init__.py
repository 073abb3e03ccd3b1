"""Records to Arrow columns, and Arrow columns to messages."""
