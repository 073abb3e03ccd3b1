"""Configuration: options, their keys and documents, live changes, tables in JSON files."""
