"""Name servers of a client that DNS or an address server knows."""

import socket

import pytest

from rmq.client import Client
from rmq.client.errors import NameServerUnreachable
from rmq.client.name_server_lookup import NameServerLookup
from rmq.core.errors import ConfigError
from tests.address_server import AddressServer


@pytest.fixture
def page():
    server = AddressServer()
    yield server
    server.stop()


def test_a_client_finds_its_name_server_on_a_page(broker, loop, page, monkeypatch):
    monkeypatch.setattr("rmq.client.name_server_lookup.RETRY_S", 0)

    async def scenario():
        async with Client(page.url) as client:
            with pytest.raises(NameServerUnreachable, match="it has 0 addresses"):
                await client.route("TBW102")
            page.page = broker.name_server.encode()
            assert (await client.route("TBW102")).topic == "TBW102"
            assert client.name_servers == (broker.name_server,)

    loop(scenario)


def test_a_client_uses_all_addresses_of_a_host(broker, loop, monkeypatch):
    """The first one is dead: no machine has it."""
    port = int(broker.name_server.rpartition(":")[2])
    find = socket.getaddrinfo

    def both(host, port, *rest, **options):
        if host != "names":
            return find(host, port, *rest, **options)
        kind = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        return [(*kind, (each, port)) for each in ("127.0.0.2", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", both)

    async def scenario():
        async with Client(f"dns://names:{port}") as client:
            assert (await client.route("TBW102")).topic == "TBW102"
            assert client.name_servers == (f"127.0.0.2:{port}", f"127.0.0.1:{port}")

    loop(scenario)


def test_a_client_without_a_lookup_never_waits_for_one():
    assert not NameServerLookup(["a:1", "b:2"]).is_due
    assert NameServerLookup(["a:1", "dns://b:2"]).is_due


@pytest.mark.parametrize("text", ["dns://host", "http://", "a:1;ftp://b"])
def test_other_sources_are_refused(text):
    with pytest.raises(ConfigError, match="name_servers: "):
        Client(text)
