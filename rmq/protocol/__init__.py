"""The remoting protocol, sans-I/O: bytes to values and back."""
