from collections.abc import Callable, Iterable
from typing import Self, final

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.timed_sends import ADDRESS_NAMES as ADDRESS_NAMES
from rmq._fastpath.handlers.timed_sends import TimedSends
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

@final
class SendTopic:
    """A topic as the Python handler has registered it."""

    def __new__(cls, key: bytes, flags: int, queue_count: int) -> Self: ...

@final
class SendTable:
    """State that the handlers of all send codes share."""

    waits_for_disk: bool
    max_body_size: int
    def __new__(
        cls,
        log: LogTail,
        *,
        now_ms: Callable[[], int],
        on_failure: Callable[[OSError], object],
        store_host: bytes,
        facts: dict[str, str],
        added: bytes,
        keys: UniqueKeys,
        declined_properties: Iterable[str],
        time_properties: Iterable[str],
        timed: TimedSends | None,
        declined_text: bytes,
        waits_for_disk: bool,
        max_body_size: int,
        version: int,
    ) -> Self:
        """`facts` are ext fields of every reply, `added` properties of every message.

        Python serves messages with one of the `declined_properties`, and batches with
        an item whose properties contain `declined_text`, unless that is empty. `timed`
        decides about messages with one of the `time_properties`.
        """

    def register(
        self, topic: str, flags: int, queue_count: int, queue: QueueTail | None
    ) -> None:
        """Serve sends to this queue of the topic, if its name and id are in the limits.

        Without a queue serve only messages that have a time. A change or deletion of
        the topic calls `unregister`, so that the table has at most the topics of the
        broker.
        """

    def has_queue(self, topic: str, queue_id: int) -> bool:
        """Return whether sends to this queue are served."""

    def unregister(self, topic: str) -> None:
        """Leave the topic to the Python handler until it is registered again."""

    def unregister_all(self) -> None:
        """Leave every topic to the Python handler until it is registered again."""
