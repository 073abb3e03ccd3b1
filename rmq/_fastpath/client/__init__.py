"""The compiled part of the Python client."""
