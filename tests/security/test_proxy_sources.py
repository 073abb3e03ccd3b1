"""A PROXY header is believed from balancers only: it decides which rules hold."""

import logging

import pytest
import trio

from rmq.core.errors import ConfigError
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.remoting.proxy_header import V2_START
from rmq.remoting.sniffer import Balancers
from tests.security.test_silent_connections import CODE, answer_from, is_closed, serving

V1 = b"PROXY TCP4 10.1.2.3 10.0.0.1 40001 10911\r\n"
V2 = V2_START + bytes.fromhex("2111000c0a0102030a0000019c412a9f")


@pytest.mark.parametrize("header", [V1, V2])
async def test_loopback_is_believed_unless_said_otherwise(header):
    async with serving() as (_server, address):
        assert (await answer_from(address, header)).remark.startswith("10.1.2.3:")


@pytest.mark.parametrize("header", [V1, V2, V1[:7]])
async def test_a_header_of_a_stranger_ends_its_connection_with_advice(header, caplog):
    caplog.set_level(logging.WARNING)
    async with serving(proxy_protocol_from="10.0.0.0/8") as (_server, address):
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(header)
            assert await is_closed(stream)
        plain = await answer_from(address)
        assert plain.remark.startswith("127.0.0.1:")
    assert "rmq.proxyProtocolFrom" in caplog.text


async def test_what_follows_an_unbelieved_header_is_never_served():
    async with serving(proxy_protocol_from="") as (server, address):
        host, _, port = address.rpartition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(V1 + encode(Command(CODE, {}, b"")))
            assert await is_closed(stream)
        assert server.statistics().requests == 0


def test_addresses_and_ranges():
    balancers = Balancers("10.0.0.0/8, 2001:db8::1,")
    assert balancers.is_balancer("10.255.0.1")
    assert balancers.is_balancer("2001:db8::1")
    assert not balancers.is_balancer("11.0.0.1")
    assert not balancers.is_balancer("2001:db8::2")
    assert not Balancers("").is_balancer("127.0.0.1")


@pytest.mark.parametrize("text", ["balancer", "10.0.0.0/33", "10.0.0.1;10.0.0.2"])
def test_a_list_that_is_none_is_refused(text):
    with pytest.raises(ConfigError, match=r"rmq\.proxyProtocolFrom"):
        Balancers(text)
