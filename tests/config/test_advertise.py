"""The address that a broker advertises to clients, and why."""

import pytest

from rmq.config.advertise import choose_address
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "address"),
    [
        (
            {"advertise": "pub.test:1234", "broker_ip1": "9.9.9.9"},
            "pub.test:1234",
        ),
        ({"broker_ip1": "10.1.2.3", "bind_address": "0.0.0.0"}, "10.1.2.3:10911"),
        ({}, "127.0.0.1:10911"),
        ({"bind_address": "192.0.2.7"}, "192.0.2.7:10911"),
    ],
)
def test_what_was_said_counts_in_this_order(options, address):
    advertised = choose_address(BrokerConfig(**options), 10_911)
    assert advertised.address == address
    assert not advertised.is_guess
    assert advertised.reason


@pytest.mark.parametrize("bound", ["0.0.0.0", "::"])
def test_without_a_word_it_is_a_guess_that_says_how_to_change_it(bound):
    advertised = choose_address(BrokerConfig(bind_address=bound), 10_911)
    assert advertised.is_guess
    assert advertised.address.endswith(":10911")
    assert "brokerIP1" in advertised.reason


@pytest.mark.parametrize("text", ["nohost", ":1", "host:", "host:x"])
def test_a_bad_address_says_what_is_wanted(text):
    with pytest.raises(ConfigError, match="host:port"):
        choose_address(BrokerConfig(advertise=text), 10_911)
