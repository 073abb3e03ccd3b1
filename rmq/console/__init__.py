"""The console: what the broker says about itself, in a browser."""
