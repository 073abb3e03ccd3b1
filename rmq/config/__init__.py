"""Options, their keys and documents, live changes, and tables in JSON files."""
