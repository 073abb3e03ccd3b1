import pytest

from rmq.core.errors import LocalProtocolError
from rmq.protocol.hosts import host_bytes, host_text, network_of


def test_hosts():
    assert host_bytes("127.0.0.1", 10911) == b"\x7f\0\0\x01\0\0\x2a\x9f"
    assert host_text(host_bytes("127.0.0.1", 10911)) == "127.0.0.1:10911"
    v6 = host_bytes("fd00::2%eth0", 80)
    assert len(v6) == 20
    assert host_text(v6) == "fd00::2:80"


@pytest.mark.parametrize(
    ("host", "port"), [("localhost", 1), ("1.2.3", 1), ("1.2.3.4", 2**31)]
)
def test_what_is_no_address(host, port):  # fmt: skip
    with pytest.raises(LocalProtocolError):
        host_bytes(host, port)


def test_a_packed_host_has_two_sizes():
    with pytest.raises(LocalProtocolError):
        host_text(b"1234")


def test_a_network_of_ipv6_counts_as_one_peer():
    assert network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("::1") == "::1"
    assert network_of("2001:db8:0:1::5") == network_of("2001:db8::1:ffff:0:0:9")
    assert network_of("2001:db8:0:1::5") == "2001:db8:0:1::/64"
    assert network_of("fe80::1%eth0") == "fe80::/64"
    assert network_of("no:address") == "no:address"
