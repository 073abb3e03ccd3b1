"""Request 20006: send dead letters of a group to this group again.

The broker stores copies in the group's retry topic, as after a first failure, so that
no other group gets them. The dead letters themselves stay until they expire.

Fields: `group`, and one of: `offsets`, numbers with commas between; `topic` and `tag`
of the original messages; `all=true`.  Body of the answer:

    {"resent": n, "looked": n, "skipped": n}

Skipped messages were deleted, or have lost the name of their topic.
"""

import random
from collections.abc import Iterable
from typing import Final

import msgspec

from rmq.plugin import (
    PERM_READ,
    PERM_WRITE,
    BrokerContext,
    Connection,
    PhysicalOffset,
    PutStatus,
    QueueOffset,
    RequestRejected,
)
from rmq.protocol import properties as names
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.message import Message
from rmq.protocol.records import StoredMessage
from rmq.protocol.topics import dlq_topic, retry_topic

MAX_RESENT: Final = 10_000
"""Maximum number of dead letters that one request examines, the oldest first."""

MESSAGES_OF_A_TURN: Final = 8


class DeadLetterHandler:
    """Sends dead letters again; Java has no such request."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._messages = broker.messages

    async def resend_dead_letters(
        self, request: Command, _connection: Connection
    ) -> Command:
        """Store the chosen dead letters again."""
        fields = request.ext_fields
        group = fields.get("group", "")
        settings = self._broker.groups.get(group)
        dead = dlq_topic(group)
        if settings is None or self._broker.topics.get(dead) is None:
            raise _invalid(f"the group {group} has no dead letters")
        if settings.retry_queue_nums <= 0:
            raise _invalid(
                f"the group {group} has retryQueueNums=0: set it to 1 or more first"
            )
        retry = retry_topic(group)
        perm = PERM_READ | PERM_WRITE
        topic = self._broker.topics.ensure(
            retry, queues=settings.retry_queue_nums, perm=perm
        )
        queues = min(settings.retry_queue_nums, topic.read_queue_nums)
        counts = {"resent": 0, "looked": 0, "skipped": 0}
        resent: set[int] = set()
        for offset in self._choose_offsets(fields, dead):
            if counts["looked"] % MESSAGES_OF_A_TURN == 0:
                self._broker.arrivals.flush()
                await self._broker.next_turn()
            record = self._read_record(dead, offset)
            counts["looked"] += 1
            if record is not None and not _is_wanted(record, fields):
                continue
            message = None if record is None else _build_retry(record, retry)
            if message is None:
                counts["skipped"] += 1
                continue
            message.queue_id = random.randrange(max(1, queues))
            status = self._broker.put.put(message, without=names.TRAN_MSG).status
            if status is not PutStatus.PUT_OK:
                raise _invalid(
                    f"{counts['resent']} messages were sent again, then one failed: "
                    f"{status.name}"
                )
            counts["resent"] += 1
            resent.add(offset)
        self._broker.arrivals.flush()
        self._broker.monitor.dead_letters.exclude_resent(group, resent)
        return request.reply(body=msgspec.json.encode(counts))

    def _choose_offsets(self, fields: dict[str, str], dead: str) -> Iterable[int]:
        low, end = (
            self._messages.min_offset(dead, 0),
            self._messages.max_offset(dead, 0),
        )
        if fields.get("offsets"):
            texts = fields["offsets"].split(",", MAX_RESENT + 1)
            if len(texts) > MAX_RESENT:
                raise _invalid(f"more than {MAX_RESENT} offsets in one request")
            if not all(t.isascii() and t.isdecimal() and len(t) < 19 for t in texts):
                raise _invalid("offsets must be numbers with commas between")
            return dict.fromkeys(map(int, texts))
        if fields.get("all") != "true" and not {"topic", "tag"} <= fields.keys():
            raise _invalid(
                "select dead letters by offsets, by topic and tag, or by all=true"
            )
        return range(low, min(end, low + MAX_RESENT))

    def _read_record(self, dead: str, offset: int) -> StoredMessage | None:
        physical = self._messages.physical_at(dead, 0, QueueOffset(offset))
        if physical < 0:
            return None
        return self._messages.message_at(PhysicalOffset(physical))


def _is_wanted(record: StoredMessage, fields: dict[str, str]) -> bool:
    if fields.get("offsets") or fields.get("all") == "true":
        return True
    tag = record.properties.get(names.TAGS, "")
    return (record.origin_topic, tag) == (fields["topic"], fields["tag"])


def _build_retry(record: StoredMessage, retry: str) -> Message | None:
    """Return the message as after a first failure; None without its original topic."""
    origin = record.origin_topic
    if not origin:
        return None
    message = record.to_message()
    message.topic = retry
    message.reconsume_times = 0
    message.prepared_transaction_offset = 0
    message.remove_property(names.DELAY)
    message.set_property(names.RETRY_TOPIC, origin)
    return message


def _invalid(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.INVALID_PARAMETER, reason)
