"""What tests ask a server about its connections."""


def connections_of(server, listener):
    """The open connections of a listener."""
    found = server._connections.values()
    return [each for each in found if each.listener_name == listener]
