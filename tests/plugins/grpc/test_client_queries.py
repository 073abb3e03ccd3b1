"""Requests of tools to clients of gRPC: their limit."""

from types import SimpleNamespace

import pytest
import trio
import trio.testing

from rmq.client import admin
from rmq.core.errors import InvokeTimeout, PeerError
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq_plugins.grpc import client_queries
from rmq_plugins.grpc.client_queries import ClientQueries


async def test_the_refusal_over_the_limit_names_it(monkeypatch, autojump_clock):
    """It once was that the client has no stream."""
    monkeypatch.setattr(client_queries, "MAX_WAITING", 1)
    queries = ClientQueries()
    stream = SimpleNamespace(send=lambda _data: True)
    session = SimpleNamespace(client_id="me", language="JAVA", stream=stream)
    request = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO)

    async def wait_in_vain():
        with pytest.raises(InvokeTimeout):
            await queries.ask_client(session, request, 5_000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_in_vain)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(PeerError, match="1 requests to gRPC clients already wait"):
            await queries.ask_client(session, request, 5_000)


def test_tools_wait_longer_for_the_broker_than_the_broker_for_a_client():
    """The command once ended with an error that blamed the broker."""
    assert client_queries.TIMEOUT_MS < admin.TIMEOUT_S * 1_000


async def test_a_client_without_a_stream():
    session = SimpleNamespace(client_id="me", stream=None)
    with pytest.raises(PeerError, match="me has no open stream"):
        await ClientQueries().ask_client(session, Command.request(307), 5_000)
