from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.bytes.selector import Selector
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.held_pulls import HeldPulls
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.log.watermark import Watermark

@final
class PullView:
    group: str
    topic: str
    expression: str | None
    sub_version: int
    selector: Selector | None
    def __new__(
        cls,
        group: str,
        topic: str,
        expression: str | None,
        *,
        sub_version: int,
        tag_codes: tuple[int, ...] | None,
        flags: dict[str, str],
        selector: Selector | None = None,
    ) -> Self: ...

    has_served: bool
    def register(self, queue: QueueTail, file: MappedFile | None) -> None: ...
    def take_served(self) -> list[tuple[int, int, int, int, int, int]]: ...

@final
class PullTable:
    hot_window: int
    read_window: int
    hot_limits: tuple[int, int]
    cold_limits: tuple[int, int]
    def __new__(
        cls,
        log: LogTail,
        reader: LogReader,
        durable: Watermark | None,
        *,
        hot_window: int,
        hot_limits: tuple[int, int],
        cold_limits: tuple[int, int],
        scan_bytes: int,
        version: int,
        commits: CommitTable,
        on_work: Callable[[], object],
    ) -> Self: ...

    held: HeldPulls
    found: int
    messages: int
    missed: int
    def __len__(self) -> int: ...
    def add(self, view: PullView) -> None: ...
    def pick_victim(self) -> PullView | None: ...
    def remove(self, view: PullView) -> None: ...
    def limit_window(self, window: int | None) -> None: ...
