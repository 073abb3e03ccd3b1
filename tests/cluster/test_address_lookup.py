"""Addresses from DNS and from a page, and servers that come and go."""

import socket

import pytest
import trio

from rmq.cluster.address_lookup import AddressLookup
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.controllers import Controllers
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.address import check_source
from rmq.core.errors import ConfigError, ConnectFailed
from rmq.outgoing.address_lookup import MAX_PAGE, look_up, look_up_all
from rmq.protocol.headers.controller import GetMetaDataResponseHeader
from rmq.testing import ManualClock
from tests.address_server import AddressServer


@pytest.fixture
def page():
    server = AddressServer()
    yield server
    server.stop()


@pytest.fixture
def dns(monkeypatch):
    """Hosts with their addresses; others do not exist."""
    hosts = {"ns": ["10.0.0.1", "10.0.0.2", "10.0.0.1", "::1"]}

    def find(host, port, **_):
        if host not in hosts:
            raise socket.gaierror(-2, "Name or service not known")
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", (ip, port)) for ip in hosts[host]]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    return hosts


def test_an_address_is_its_own_result():
    assert look_up("somewhere:9876") == ("somewhere:9876",)


def test_dns_gives_each_address_once(dns):
    assert look_up("dns://ns:9876") == ("10.0.0.1:9876", "10.0.0.2:9876", "[::1]:9876")
    with pytest.raises(ConnectFailed, match=r"dns://away:1: .*not known"):
        look_up("dns://away:1")
    dns["none"] = []
    with pytest.raises(ConnectFailed, match="it has 0 addresses"):
        look_up("dns://none:1")
    dns["many"] = [f"10.0.1.{number}" for number in range(65)]
    with pytest.raises(ConnectFailed, match="it has 65 addresses"):
        look_up("dns://many:1")


def test_the_first_line_of_a_page_counts_as_in_java(page):
    page.page = b" a:1;b:2 ; \r\nc:3\n"
    assert look_up(page.url) == ("a:1", "b:2")
    assert page.paths == ["/rocketmq/nsaddr"]
    assert look_up(page.url + "?nofix=1") == ("a:1", "b:2")
    assert page.paths[1] == "/rocketmq/nsaddr?nofix=1"


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"a:1", "it answers 404"),
        (302, b"a:1", "it answers 302"),
        (200, b"", "it has 0 addresses"),
        (200, b"<html>", "which is not HOST:PORT"),
        (200, b"a:1;" * MAX_PAGE, "it has 16384 addresses"),
        (200, b"\xff\xfe:1;b", "which is not HOST:PORT"),
    ],
)
def test_a_bad_page_is_no_list(page, status, body, reason):
    page.status, page.page = status, body
    with pytest.raises(ConnectFailed, match=reason):
        look_up(page.url)


def test_an_address_server_that_is_away_is_named(page):
    page.stop()
    with pytest.raises(ConnectFailed, match=rf"cannot look up {page.url}: .*refused"):
        look_up(page.url)


def test_one_source_of_several_is_enough(dns):
    assert look_up_all(["dns://away:1", "x:1", "x:1"]) == ("x:1",)
    with pytest.raises(ConnectFailed, match="away"):
        look_up_all(["dns://away:1", "dns://gone:1"])


@pytest.mark.parametrize(
    "source",
    ["", "host", "dns://host", "http://", "http:///x", "http://a:b/x", "dns://"],
)
def test_other_texts_are_refused(source):
    with pytest.raises(ConfigError, match="is not"):
        check_source(source)


@pytest.mark.parametrize(
    ("values", "sources"),
    [
        ({"namesrvAddr": "a:1; b:2"}, ("a:1", "b:2")),
        (
            {"namesrvAddr": "a:1;b:2", "fetchNameSrvAddrByDnsLookup": "true"},
            ("dns://a:1", "dns://b:2"),
        ),
        ({}, ()),
        (
            {"fetchNamesrvAddrByAddressServer": "true"},
            ("http://jmenv.tbsite.net:8080/rocketmq/nsaddr",),
        ),
        (
            {
                "fetchNamesrvAddrByAddressServer": "true",
                "rocketmq.namesrv.domain": "names:80",
                "rocketmq.namesrv.domain.subgroup": "east",
            },
            ("http://names:80/rocketmq/east",),
        ),
        (
            {"namesrvAddr": "a:1", "fetchNamesrvAddrByAddressServer": "true"},
            ("a:1",),
        ),
    ],
)
def test_keys_mean_what_they_mean_to_java(values, sources):
    config = build(
        BrokerConfig, values | {"namesrvAddr": values.get("namesrvAddr", "")}
    )
    assert config.name_server_sources == sources
    assert config.has_own_name_server == (not sources)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (
            {"fetchNameSrvAddrByDnsLookup": "true"},
            "^fetchNameSrvAddrByDnsLookup=true: set namesrvAddr to HOST:PORT",
        ),
        (
            {"fetchNamesrvAddrByAddressServer": "true", "namesrvAddr": "a:1;b"},
            "^namesrvAddr=a:1;b: b is no address",
        ),
        (
            {"fetchNamesrvAddrByAddressServer": "true", "namesrvAddr": "b;a:1"},
            "^namesrvAddr=b;a:1: b is no address",
        ),
        (
            {
                "fetchNamesrvAddrByAddressServer": "true",
                "rocketmq.namesrv.domain": "a:b:c",
            },
            "^rocketmq.namesrv.domain=a:b:c: .* is not http://HOST:PORT/PATH",
        ),
    ],
)
def test_contradictions_are_refused(values, reason):
    with pytest.raises(ConfigError, match=reason):
        build(BrokerConfig, {"namesrvAddr": ""} | values)


async def test_addresses_stay_while_a_lookup_fails(dns, caplog):
    lookup = AddressLookup("name servers", ["dns://ns:1"], 60)
    assert lookup.is_wanted
    assert lookup.addresses == ()
    await lookup.update_at_start()
    assert lookup.addresses == ("10.0.0.1:1", "10.0.0.2:1", "[::1]:1")
    assert 55 < lookup.pause_s <= 60
    changes = [await lookup.update()]
    known = dns.pop("ns")
    changes += [await lookup.update(), await lookup.update()]
    assert changes == [False, False, False]
    assert len(lookup.addresses) == 3
    assert 0 < lookup.pause_s <= 5
    dns["ns"] = known[1:2]
    is_changed = await lookup.update()
    assert is_changed
    assert lookup.addresses == ("10.0.0.2:1",)
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1


async def test_a_start_does_not_wait_for_a_silent_server(autojump_clock):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    lookup = AddressLookup("name servers", [f"http://127.0.0.1:{port}/x"])
    with trio.fail_after(6):
        await lookup.update_at_start()
    assert lookup.addresses == ()
    listener.close()


async def test_controllers_are_looked_up(dns):
    dns["c"] = ["10.0.0.7", "10.0.0.8"]
    values = {"controllerAddr": "c:9878", "fetchControllerAddrByDnsLookup": "true"}
    asked, config = [], build(ReplicationConfig, values)

    async def ask(address, request, _timeout_ms):
        asked.append(address)
        header = GetMetaDataResponseHeader(
            group="g", controller_leader_address="10.0.0.8:9878"
        )
        return request.reply(header=header)

    found = Controllers(BrokerConfig(), config, ask, "me:1", ManualClock())
    assert found.addresses == ()
    await found.find_leader()
    assert found.leader == "10.0.0.8:9878"
    assert found.addresses == ("10.0.0.7:9878", "10.0.0.8:9878")
    assert set(asked) == set(found.addresses)
