"""Writing: rows become messages."""
