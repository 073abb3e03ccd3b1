"""Decisions of a client: values and state machines without I/O, which get the time as a
parameter.
"""
