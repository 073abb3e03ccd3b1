"""Commands of `manage.py`, one a module."""
