"""A server on a real socket, with handlers of the test's own."""

import contextlib

import pytest
import trio

from rmq.protocol.command import Command
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.server import RemotingServer
from rmq.testing import RawClient
from tests.connections import connections_of


class Served:
    """A running server with one listener, and what happened to its connections."""

    def __init__(self):
        self.handlers = HandlerTable()
        self.server = RemotingServer()
        self.closed = []
        self.address = ""

    def register(self, code, handler, **limits):
        self.handlers.register(code, handler, **limits)

    def client(self):
        return RawClient.connect(self.address)

    def only_connection(self):
        (connection,) = connections_of(self.server, "main")
        return connection

    def reasons(self):
        return [connection.close_reason for connection in self.closed]


@pytest.fixture
def serving():
    @contextlib.asynccontextmanager
    async def serve(host="127.0.0.1", **settings):
        served = Served()
        async with trio.open_nursery() as nursery:
            await nursery.start(served.server.run)
            port = await served.server.bind(
                "main",
                host,
                0,
                served.handlers,
                **settings,
            )
            served.address = f"{host}:{port}"
            served.server.start_accepting("main", served.closed.append)
            yield served
            nursery.cancel_scope.cancel()

    return serve


@pytest.fixture
def request_of():
    def make(code, body=b"", **fields):
        return Command(code, {k: str(v) for k, v in fields.items()}, body)

    return make
