"""Options of the transport."""

import logging

import pytest

from rmq.integrations.kombu import options as module
from rmq.integrations.kombu.options import Options


@pytest.fixture(autouse=True)
def _nothing_reported(monkeypatch):
    monkeypatch.setattr(module, "_reported", set())


def test_defaults():
    found = Options.read({})
    assert found.visibility_timeout == 60
    assert found.native_eta
    assert found.max_deliveries == 16


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"visibility_timeout": 1}, "the minimum is 5 seconds"),
        ({"visibility_timeout": "long"}, "visibility_timeout"),
        ({"max_deliveries": -1}, "max_deliveries must not be negative"),
        ({"native_eta": 3}, "native_eta"),
    ],
)
def test_a_wrong_value_is_an_error_with_its_name(given, text):
    with pytest.raises(ValueError, match=text):
        Options.read(given)


def test_an_option_of_another_transport_is_reported_once(caplog):
    with caplog.at_level(logging.WARNING):
        Options.read({"priority_steps": [0, 3], "max_retries": 3})
        Options.read({"priority_steps": [0, 3], "max_retries": 3})
    (record,) = caplog.records
    assert "priority_steps: each priority has a queue" in record.getMessage()


def test_an_unknown_option_is_reported(caplog):
    with caplog.at_level(logging.WARNING):
        Options.read({"visibilty_timeout": 3})
    assert "visibilty_timeout: there is no such option" in caplog.text
