"""The console: the views of a broker as pages for a browser."""
