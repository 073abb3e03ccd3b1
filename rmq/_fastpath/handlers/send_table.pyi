from collections.abc import Callable, Iterable
from typing import Self, final

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.diversion import ADDRESS_NAMES as ADDRESS_NAMES
from rmq._fastpath.handlers.diversion import Diversion
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

@final
class SendTopic:
    def __new__(
        cls, key: bytes, flags: int, queue_count: int, once_window_ms: int
    ) -> Self: ...

@final
class SendTable:
    waits_for_disk: bool
    max_body_size: int
    once: OnceTable | None
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
        diversions: dict[str, Diversion],
        declined_text: bytes,
        waits_for_disk: bool,
        max_body_size: int,
        version: int,
    ) -> Self: ...
    def register(
        self,
        topic: str,
        flags: int,
        queue_count: int,
        queue: QueueTail | None,
        *,
        once_window_ms: int = 0,
    ) -> None: ...
    def has_queue(self, topic: str, queue_id: int) -> bool: ...
    def unregister(self, topic: str) -> None: ...
    def unregister_all(self) -> None: ...
