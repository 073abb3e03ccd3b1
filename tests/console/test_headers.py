"""Which names and pages are let in."""

import pytest

from rmq.console.headers import is_known_host, is_own_page


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:10920", "[::1]:10920", "::1", "localhost",
        "10.2.0.11:80",
        "LOCALHOST:1", "a.localhost", "broker.example:10920",
    ],
)  # fmt: skip
def test_known_hosts(host):
    assert is_known_host(host, {"broker.example"})


@pytest.mark.parametrize(
    "host",
    [
        "", "evil.example", "localhost.evil.example:10920", "127.0.0.1.evil.example",
        "xlocalhost", "broker.example.evil", "[::1", "1.2.3", ":10920",
    ],
)  # fmt: skip
def test_foreign_hosts(host):
    assert not is_known_host(host, {"broker.example"})


def test_own_pages():
    own = "http://127.0.0.1:1", "127.0.0.1:1"
    assert is_own_page(*own, "same-origin")
    assert is_own_page(*own, "")
    assert not is_own_page(*own, "cross-site")
    assert not is_own_page("http://evil.example", "127.0.0.1:1", "")
    assert not is_own_page("null", "127.0.0.1:1", "")
    assert not is_own_page("", "127.0.0.1:1", "")
