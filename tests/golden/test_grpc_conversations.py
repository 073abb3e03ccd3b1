"""Recorded SDKs get the answers again that they got, without the SDKs."""

import pytest

from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.testing.broker import running_node
from tests.golden.grpc_conversations import (
    ARCHIVE,
    COUNT,
    TOPIC,
    conversations,
    replay,
)

CONVERSATIONS = conversations()


def test_the_archive_is_small():
    assert 0 < ARCHIVE.stat().st_size < 100_000
    assert len(CONVERSATIONS) >= 4


@pytest.mark.parametrize("sdk", CONVERSATIONS)
async def test_an_sdk_gets_the_same_answers(tmp_path, sdk):
    async with running_node(tmp_path) as node:
        context = node.broker.context
        context.topics.ensure(TOPIC, queues=1, perm=6)
        context.groups.update(SubscriptionGroupConfig(group_name="golden-group"))
        pairs = await replay(CONVERSATIONS[sdk], node.broker.port)
        stored = context.store.queues.get(TOPIC, 0).next_offset
        committed = context.offsets.query("golden-group", TOPIC, 0)
    methods = set()
    for recorded, live in pairs:
        assert live.keys() >= recorded.keys()
        for stream, answer in recorded.items():
            assert live[stream] == answer
            methods.add(answer[0])
    assert methods >= {"QueryRoute", "SendMessage", "ReceiveMessage", "AckMessage"}
    assert (stored, committed) == (COUNT, COUNT)
