"""A broker for the tests of a module, and one scenario under each loop."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio

from rmq.testing import BrokerThread

LIMIT_S = 20

SETTINGS = {"messageDelayLevel": "1s 1s 1s 1s", "enablePropertyFilter": "true"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """A broker with short delays: all levels take a second."""
    with BrokerThread(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture(params=["asyncio", "trio"])
def loop(request) -> Callable[[Callable[..., Awaitable[object]]], object]:
    """What runs an async function under a loop, with a limit of time."""

    async def limited(scenario, *arguments):
        with anyio.fail_after(LIMIT_S):
            return await scenario(*arguments)

    def run(scenario, *arguments):
        if request.param == "trio":
            return trio.run(limited, scenario, *arguments)
        return asyncio.run(limited(scenario, *arguments))

    run.name = request.param
    return run
