"""The reactor: connections, frames, headers and held replies."""
