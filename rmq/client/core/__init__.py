"""Decisions of a client without I/O: values and state machines, time a parameter."""
