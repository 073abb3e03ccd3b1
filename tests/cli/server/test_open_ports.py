"""The warning of a start about ports that other machines reach without a user."""

import logging

import pytest

from rmq.access.config import AuthConfig
from rmq.cli.config.sources import report_findings
from rmq.cli.server.runner import warn_open_ports
from rmq.container.config import CONTAINER_OPTIONS
from tests.cli.server.test_default_console import end, start

OPEN = {"bindAddress": "0.0.0.0"}
USERS = {"authenticationEnabled": "true", "authorizationEnabled": "true"}


@pytest.mark.parametrize(
    ("values", "warns"),
    [
        ({}, False), (OPEN, True), ({"bindAddress": "::"}, True),
        ({"bindAddress": "::1"}, False), ({"bindAddress": "localhost"}, False),
        (OPEN | {"rmq.allowOpen": "true"}, False), (OPEN | USERS, False),
    ],
)  # fmt: skip
def test_name_servers_and_controllers(caplog, values, warns):
    warn_open_ports(values, {"namesrv": "0.0.0.0:9876"})
    assert ("port 9876 is open on" in caplog.text) == warns


@pytest.mark.parametrize("accepted", ["false", "true"])
def test_a_broker(tmp_path, accepted):
    more = "--set", "bindAddress=0.0.0.0", "--set", f"rmq.allowOpen={accepted}"
    said, child = start(tmp_path, *more)
    end(child)
    assert ("without authentication: bindAddress=" in said) == (accepted == "false")


@pytest.mark.parametrize("classes", [CONTAINER_OPTIONS, (AuthConfig,)])
def test_every_process_with_users_knows_the_remedy(caplog, classes):
    caplog.set_level(logging.WARNING)
    report_findings(USERS | {"rmq.allowOpen": "true"}, classes, strict=True)
    assert caplog.text == ""
