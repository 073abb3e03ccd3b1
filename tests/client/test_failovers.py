"""A failover is no error of a default client: nothing fails, nothing is lost."""

import asyncio

import pytest

from tests.client.steady_load import (
    RATE,
    RUN_S,
    send_and_consume,
    send_and_consume_in_threads,
)
from tests.interop.groups import Group, rmq_controller
from tests.interop.processes import serving

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

KINDS = {"one": "rmq", "two": "rmq"}


@pytest.fixture
def group(disk_path):
    """Two brokers of a group, their controller and their name server."""
    words = ("--set", "listenPort=0")
    with (
        serving("namesrv", *words) as names,
        rmq_controller(disk_path / "controller") as (controllers, _),
    ):
        found = Group(disk_path, names.namesrv, controllers, KINDS)
        found.name_server = names.namesrv
        try:
            found.start_all()
            yield found
        finally:
            found.close()


def fail_over(group, how):
    """End the master, wait for the next one, and start the old one again."""
    master, epoch = group.master(), group.epoch()
    group.kill(master) if how == "kill" else group.stop(master)
    group.await_master(after=epoch)
    group.start(master)
    group.await_all()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_failover_is_no_error(group, how):
    seen, errors = set(), []
    stored = asyncio.run(
        send_and_consume(group.name_server, lambda: fail_over(group, how), seen, errors)
    )
    assert errors == []
    assert len(stored) > RATE * 2 * RUN_S


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_failover_is_no_error_in_threads(group, how):
    errors = []
    stored = send_and_consume_in_threads(
        group.name_server, lambda: fail_over(group, how), errors
    )
    assert errors == []
    assert stored
