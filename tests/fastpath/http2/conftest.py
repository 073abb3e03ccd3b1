import pytest

from tests.fastpath.http2.caller import Caller, new_server


@pytest.fixture
def caller():
    """A connection after its greeting."""
    wire, server = new_server()
    yield Caller(wire, server)
    wire.close()


@pytest.fixture
def http2():
    """(wire, server) without a connection."""
    wire, server = new_server()
    yield wire, server
    wire.close()
