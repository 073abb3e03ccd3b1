"""A POP or a notification that waits gets a message that compiled code stores at once.

Nothing else happens in these brokers: no other traffic wakes Python.
"""

import pytest
import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import BrokerThread, RawClient

TOPIC = "waiting"
POP = {
    "consumerGroup": "G", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
    "invisibleTime": "60000", "pollTime": "5000", "bornTime": "0", "initMode": "0",
    "order": "false",
}  # fmt: skip
NOTIFICATION = {
    key: POP[key] for key in ("consumerGroup", "topic", "queueId", "pollTime")
} | {"bornTime": "0"}
SEND = {
    "a": "producer", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
    "h": "0", "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
LIMIT_S = 0.25
"""Before, Python was notified after a second, or earlier by chance."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("waiting")) as running:
        running.send(TOPIC, b"first")
        yield running


async def longest_wait_s(address, code, fields):
    """Return how long it takes at most from a send to the answer that waited for it."""
    durations = []

    async def wait(client):
        answer = await client.call(Command(code, fields), 10)
        assert answer.code == 0, answer.remark
        durations.append(trio.current_time() - began)

    async with RawClient.connect(address) as waits, RawClient.connect(address) as sends:
        await pop_all(waits)
        for _ in range(4):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, waits)
                while await count_waiting(sends) == 0:
                    pass
                began = trio.current_time()
                await sends.call(Command(RequestCode.SEND_MESSAGE_V2, SEND, b"x"), 5)
            await pop_all(waits)
    return max(durations)


async def time_until_visible_s(address):
    """Return how long a message without an ack stays away from a POP that waits."""
    async with (
        RawClient.connect(address) as client,
        RawClient.connect(address) as sends,
    ):
        await pop_all(client)
        await sends.call(Command(RequestCode.SEND_MESSAGE_V2, SEND, b"x"), 5)
        request = Command(RequestCode.POP_MESSAGE, {**POP, "invisibleTime": "400"})
        began = trio.current_time()
        assert (await client.call(request, 5)).code == 0
        assert (await client.call(Command(RequestCode.POP_MESSAGE, POP), 5)).code == 0
        return trio.current_time() - began


async def pop_all(client):
    while True:
        request = Command(RequestCode.POP_MESSAGE, {**POP, "pollTime": "0"})
        if (await client.call(request, 5)).code != 0:
            return


async def count_waiting(client):
    fields = {"consumerGroup": "G", "topic": TOPIC, "queueId": "-1"}
    answer = await client.call(Command(RequestCode.POLLING_INFO, fields), 5)
    return int(answer.ext_fields["pollingNum"])


@pytest.mark.parametrize(
    ("code", "fields"),
    [(RequestCode.POP_MESSAGE, POP), (RequestCode.NOTIFICATION, NOTIFICATION)],
    ids=["pop", "notification"],
)
def test_a_message_ends_the_wait_at_once(broker, code, fields):
    assert broker.run(longest_wait_s, broker.address, code, fields) < LIMIT_S


def test_a_message_comes_again_as_soon_as_it_is_visible(broker):
    """The compiled POP has a time that is earlier than all others."""
    took = broker.run(time_until_visible_s, broker.address)
    assert 0.39 < took < 0.4 + LIMIT_S
