"""A start waits for the address of its advertised host, as a new pod has to."""

import socket

import pytest
import trio

from rmq.broker import broker
from rmq.core.errors import StoreError
from rmq.testing import running_node

SETTINGS = {"rmq.advertise": "pod-0.rmq:10911"}


@pytest.fixture
def names(monkeypatch):
    """Let the DNS fail a number of times for one host."""
    failures = {"left": 0}
    real = trio.socket.getaddrinfo

    async def look_up(host, *arguments, **options):
        if host == "pod-0.rmq":
            if failures["left"]:
                failures["left"] -= 1
                raise socket.gaierror(-2, "Name or service not known")
            host = "127.0.0.1"
        return await real(host, *arguments, **options)

    monkeypatch.setattr(trio.socket, "getaddrinfo", look_up)
    monkeypatch.setattr(broker, "RESOLVE_PAUSE_S", 0.01)
    return failures


async def test_a_name_that_comes_later(names, tmp_path, caplog):
    names["left"] = 3
    async with running_node(tmp_path, SETTINGS) as node:
        assert node.broker.advertised.address == "pod-0.rmq:10911"
    said = [each for each in caplog.messages if "has no address yet" in each]
    assert len(said) == 3
    assert "the start waits for it, at most" in said[0]


async def test_a_name_that_never_comes(names, tmp_path, monkeypatch):
    names["left"] = 1_000
    monkeypatch.setattr(broker, "RESOLVE_S", 0.05)
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoreError, match="host pod-0.rmq has no address"),
        flatten_subgroups=True,
        allow_unwrapped=True,
    ):
        async with running_node(tmp_path, SETTINGS):
            pass
