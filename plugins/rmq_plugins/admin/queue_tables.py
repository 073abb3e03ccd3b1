"""Answers with an entry for each queue: they are read and written in turns.

A topic may have 65,536 queues, and a group may read thousands of topics. Other requests
are served between two parts.
"""

from collections.abc import Callable
from typing import Final

from rmq.plugin import TurnTaker
from rmq.protocol import fastjson
from rmq.protocol.bodies.common import MessageQueue

QUEUES_AT_ONCE: Final = 8
"""Queues that are read between two reads of the clock, in about 0.2 ms."""


async def read_queue_members(
    broker_name: str,
    topic: str,
    queue_count: int,
    read: Callable[[str, int], object],
    turns: TurnTaker,
) -> list[bytes]:
    """Return `read(topic, queue id)` of each queue as the members of a table by queue.

    Each text starts with a comma, as `fill` expects it.
    """
    texts = []
    for start in range(0, queue_count, QUEUES_AT_ONCE):
        await turns()
        part = {
            MessageQueue(topic=topic, broker_name=broker_name, queue_id=queue_id): read(
                topic, queue_id
            )
            for queue_id in range(start, min(start + QUEUES_AT_ONCE, queue_count))
        }
        texts.append(b"," + fastjson.dump_json(part)[1:-1])
    return texts
