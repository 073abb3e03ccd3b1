"""A broker for the tests of a module, and one scenario under each loop.

With RMQ_CLIENT_BROKER (`rmq`, `Java 5.5.0`, `Java 4.9.7`) that broker serves all tests,
in a process of its own: so `tests/interop/test_parity.py` runs those of its table.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio

from rmq.testing import BrokerThread

OTHER = os.environ.get("RMQ_CLIENT_BROKER")
LIMIT_S = 90 if OTHER else 20

SETTINGS = {"messageDelayLevel": "1s 1s 1s 1s", "enablePropertyFilter": "true"}


@pytest.fixture(scope="session")
def other_broker(tmp_path_factory):
    """The broker that RMQ_CLIENT_BROKER names; None without it."""
    if OTHER is None:
        yield None
        return
    from tests.interop.parity import broker_of

    with broker_of(OTHER, tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest.fixture(scope="module")
def broker(other_broker, tmp_path_factory):
    """A broker with short delays: all levels take a second."""
    if other_broker is not None:
        yield other_broker
        return
    with BrokerThread(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(params=["asyncio", "trio"])
def loop(request) -> Callable[[Callable[..., Awaitable[object]]], object]:
    """What runs an async function under a loop, with a limit of time."""

    async def limited(scenario, *arguments):
        with anyio.fail_after(run.limit_s):
            return await scenario(*arguments)

    def run(scenario, *arguments):
        if request.param == "trio":
            return trio.run(limited, scenario, *arguments)
        return asyncio.run(limited(scenario, *arguments))

    run.name, run.limit_s = request.param, LIMIT_S
    return run
