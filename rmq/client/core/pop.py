"""Handles of popped messages: made from the answer to a POP, joined to acks.

The handle of a message is what its acknowledgement needs: its checkpoint, which is the
start of what one POP has taken of a queue, the time of the POP, and the place of the
message. Texts are as in `rmq.protocol.handles` and in the header of the answer.
"""

import base64
from collections.abc import Iterable
from typing import Final, NamedTuple

from rmq.protocol.bodies.pop import BatchAck
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.pop import PopMessageResponseHeader
from rmq.protocol.topics import pop_retry_topic

RETRY_FLAGS: Final = {"1": 1, "2": 2}
"""The version of the name of a retry topic, by its flag."""

MAX_SPAN: Final = 4_096
"""Bits of an ack of several messages; one that lies further away goes alone."""

KNOWN_FIELDS: Final = 8


class Place(NamedTuple):
    """A popped message, as its broker knows it."""

    handle: PopHandle
    queue_id: int
    offset: int

    @property
    def text(self) -> str:
        """The text `extraInfo`."""
        return self.handle.encode(self.queue_id, self.offset)

    @property
    def can_join(self) -> bool:
        """Whether an ack of several messages may have it."""
        return 0 <= self.offset - self.handle.start < MAX_SPAN

    def topic(self, topic: str, group: str) -> str:
        """Return the topic where the message lies: that of the group, or its retries.

        >>> handle = PopHandle(0, 1, 60_000, 2, "1", "b")
        >>> Place(handle, 0, 7).topic("T", "G")
        '%RETRY%G_T'
        """
        version = RETRY_FLAGS.get(self.handle.flag)
        return topic if version is None else pop_retry_topic(topic, group, version)


class Popped:
    """What the header of an answer says of its messages; ValueError if damaged."""

    def __init__(self, header: PopMessageResponseHeader, broker: str) -> None:
        self._header = header
        self._broker = broker
        self._starts = dict(_infos(header.start_offset_info))
        self._offsets = {
            key: frozenset(map(int, text.split(",")))
            for key, text in _infos(header.msg_offset_info)
        }

    def place(
        self, queue_id: int, offset: int, *, is_retry: bool, known: str | None
    ) -> Place:
        """Return the place of a message; `known` is its property `POP_CK`, if any.

        Only messages that come again have one, unless a program has copied it.
        """
        if is_retry and known is not None:
            handle, fields = PopHandle.decode(known), known.split(" ")
            if handle is None or len(fields) < KNOWN_FIELDS:
                raise ValueError(f"the handle {known!r} of a message is damaged")
            return Place(handle, int(fields[6]), int(fields[7]))
        for flag in (*RETRY_FLAGS, "0") if is_retry else ("0", *RETRY_FLAGS):
            if offset in self._offsets.get((flag, queue_id), ()):
                start = int(self._starts[flag, queue_id])
                return Place(self._handle(flag, start), queue_id, offset)
        raise ValueError(f"the answer says nothing of {offset} in queue {queue_id}")

    def _handle(self, flag: str, start: int) -> PopHandle:
        header = self._header
        return PopHandle(
            start,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            flag,
            self._broker,
        )


def _infos(text: str | None) -> Iterable[tuple[tuple[str, int], str]]:
    """Read `flag queue value;flag queue value`."""
    for each in (text or "").split(";"):
        if each:
            flag, queue_id, value = each.split(" ")
            yield (flag, int(queue_id)), value


def acks_of(places: Iterable[Place], topic: str, group: str) -> list[BatchAck]:
    """Join acknowledgements, those of one checkpoint into one entry; all `can_join`."""
    joined: dict[tuple[PopHandle, int], int] = {}
    for handle, queue_id, offset in places:
        key = handle, queue_id
        joined[key] = joined.get(key, 0) | 1 << (offset - handle.start)
    return [
        BatchAck(
            group=group,
            topic=topic,
            retry=handle.flag,
            start=handle.start,
            queue_id=queue_id,
            revive_queue=handle.revive_queue,
            pop_ms=handle.pop_ms,
            invisible_ms=handle.invisible_ms,
            bits=_bit_set(bits),
        )
        for (handle, queue_id), bits in joined.items()
    ]


def _bit_set(bits: int) -> str:
    """Return the bytes of Java's `BitSet` in Base64: the lowest bit is the first."""
    data = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return base64.b64encode(data).decode()
