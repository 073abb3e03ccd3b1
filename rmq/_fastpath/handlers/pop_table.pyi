from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail, TailSet

@disjoint_base
class PopPosition:
    next_offset: int
    is_gone: bool

@final
class PopTopic:
    topic: str
    queue_count: int
    def __new__(
        cls,
        group: str,
        topic: str,
        *,
        queue_count: int,
        tag_codes: tuple[int, ...] | None,
        committed: dict[int, int],
        tails: TailSet,
    ) -> Self: ...
    def register(
        self,
        queue_id: int,
        position: PopPosition | None,
        source: tuple[QueueTail, MappedFile | None] | None,
    ) -> None: ...

@final
class PopView:
    key: tuple[str, str, str, str]
    own: PopTopic
    retries: tuple[PopTopic, ...]
    priority: int
    is_current: bool
    def topic_of(self, name: str) -> PopTopic | None: ...
    def __new__(
        cls,
        key: tuple[str, str, str, str],
        own: PopTopic,
        retries: tuple[PopTopic, ...],
        priority: int = 0,
    ) -> Self: ...

@final
class PopTable:
    is_reversed: bool
    def __new__(
        cls,
        pulls: PullTable,
        *,
        draw: Callable[[], int],
        on_found: Callable[..., tuple[int, int, bool] | None],
        on_wait: Callable[..., bool | None],
        version: int,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def take_draw(self) -> int: ...
    def add(self, view: PopView) -> None: ...
    def remove(self, view: PopView) -> None: ...
    def pick_victim(self) -> PopView | None: ...
