"""Sockets: listeners, the reactor loop, dispatch, outgoing calls."""
