"""Texts of addresses: names, IPv4, IPv6 with and without brackets, bad ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.address import Address, host_of, is_address, is_loopback

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
HOSTS = NAMES | st.ip_addresses().map(str)
ADDRESSES = st.builds(Address, HOSTS, st.integers(0, 65_535))


@given(ADDRESSES)
def test_both_forms_are_read_back(address):
    for text in (str(address), address.java_text):
        assert is_address(text)
        assert Address.parse(text) == address
        assert host_of(text) == address.host


def test_only_our_form_has_brackets():
    address = Address.parse("::1:10911")
    assert address == ("::1", 10911)
    assert str(address) == "[::1]:10911"
    assert address.java_text == "::1:10911"
    assert str(Address("broker-a", 10911)) == "broker-a:10911"


@pytest.mark.parametrize(
    "text",
    ["", ":", "host", "host:", ":10911", "[]:10911", "host:-1", "host:1e3", "host:x"],
)
def test_other_texts_are_refused(text):
    assert not is_address(text)
    with pytest.raises(ValueError, match="is not HOST:PORT"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True),
     ("localhost", True), ("0.0.0.0", False), ("::", False), ("127.example.org", False),
     ("", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_loopback(host, is_local):
    assert is_loopback(host) == is_local


def test_a_text_without_a_colon_has_no_host():
    assert host_of("a name") == ""
