from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.held_pulls import HeldPulls
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.log.watermark import Watermark

@final
class PullView:
    """A group, a topic and a filter, as the Python handler has registered them."""

    group: str
    topic: str
    expression: str | None
    sub_version: int
    def __new__(
        cls,
        group: str,
        topic: str,
        expression: str | None,
        *,
        sub_version: int,
        tag_codes: tuple[int, ...] | None,
        flags: dict[str, str],
    ) -> Self:
        """`flags` are ext fields at the end of each reply.

        Without an expression it is the view of the group's heartbeats.
        """

    has_served: bool
    def register(self, queue: QueueTail, file: MappedFile | None) -> None:
        """Register a queue; `file` has the entries that are read now, or is None."""

    def take_served(self) -> list[tuple[int, int, int, int, int, int]]:
        """Return [(queue id, pulls, messages, bytes, end, token)] since the last call.

        `end` is the offset after the last message, `token` is that of its connection.
        """

@final
class PullTable:
    """State that the handlers of all pull codes share."""

    hot_window: int
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
    ) -> Self:
        """`files` of the log stay in order; readers stop at `durable`.

        Limits are (messages, bytes) of a pull that begins in the last `hot_window`
        bytes of the log, and of one that begins before.  `commits` gets their offsets.
        """

    held: HeldPulls
    found: int
    messages: int
    missed: int
    def __len__(self) -> int: ...
    def add(self, view: PullView) -> None:
        """Register a view; it replaces one with the same key."""

    def pick_victim(self) -> PullView | None:
        """Return a view that may go for another one."""

    def remove(self, view: PullView) -> None:
        """Remove a view and leave its pulls to the Python handler."""
