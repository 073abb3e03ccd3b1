"""Networks of a key, and hosts within them."""

import pytest

from rmq.access.networks import LOOPBACK, are_within, parse_networks
from rmq.core.errors import ConfigError


@pytest.mark.parametrize(
    ("hosts", "is_within"),
    [
        (["127.0.0.1"], True),
        (["127.8.9.10", "::1"], True),
        (["10.1.2.3"], True),
        (["10.2.0.1"], False),
        (["fe80::1%eth0"], True),
        (["127.0.0.1", "192.0.2.1"], False),
        (["a name"], False),
        ([""], False),
    ],
)
def test_all_hosts_must_be_within(hosts, is_within):
    allowed = LOOPBACK + parse_networks("k", " 10.1.0.0/16, fe80::/10,")
    assert are_within(hosts, allowed) is is_within


def test_a_value_that_is_no_network_names_the_key():
    with pytest.raises(ConfigError, match=r"k=10\.0\.0\.0/99: .*write addresses"):
        parse_networks("k", "10.0.0.0/99")
    assert parse_networks("k", "") == ()
