from typing import Protocol, final

from rmq._fastpath.bytes.unique_keys import UniqueKeys

class _Message(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def body(self) -> bytes: ...

@final
class PackedMessage:
    """A message or a batch, packed once for all attempts to send it.

    `msg_ids` is one id, or the ids of a batch. All attempts have the same id, by which
    consumers find duplicates. With `alone` it joins no batch.
    """

    topic: str
    msg_ids: str | list[str]
    properties: bytes
    body: bytes
    sys_flag: int
    wait_stored: bool
    alone: bool
    size: int
    """Bytes of body and properties."""

    def __init__(
        self,
        topic: str,
        msg_ids: str | list[str],
        properties: bytes,
        body: bytes,
        sys_flag: int,
        wait_stored: bool,
        alone: bool = False,
    ) -> None: ...
    @property
    def is_batch(self) -> bool:
        """Whether it has several messages."""

def pack_plain(keys: UniqueKeys, message: _Message, limit: int) -> PackedMessage | None:
    """Pack a plain message with a body of at most `limit` bytes; None for others.

    A plain message has no tags, keys and properties. It waits for the disk, and its
    topic does not belong to the system.
    """

def join(messages: list[PackedMessage], properties: bytes) -> PackedMessage:
    """Pack messages of one topic as a batch with these properties.

    The batch has no id of its own: brokers of 4.9 would give it to all of them.
    """
