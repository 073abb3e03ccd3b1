"""The fixture `rmq_client`."""

import anyio
import pytest

from rmq.client import Message
from rmq.core.errors import RmqError


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_sends_and_takes(rmq_client, backend):
    async def scenario():
        async with rmq_client() as client:
            await client.send(Message("Orders", b"bread"))
            await client.send(Message("Orders", b"apples"))
            for _ in range(2):
                assert (await client.receive("Orders", 1))[0].topic == "Orders"
            with pytest.raises(RmqError, match="0 of 1 messages of Orders came"):
                await client.receive("Orders", 1, timeout_s=0.01)

    anyio.run(scenario, backend=backend)
