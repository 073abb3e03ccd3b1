"""What a client decides, without I/O: values and state machines, time a parameter."""
