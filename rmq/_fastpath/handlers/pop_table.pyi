from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.handlers.checkpoint import PopQueue
from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.handlers.held_pulls import HeldPulls
from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail, TailSet

@final
class PopTopic:
    topic: str
    queue_count: int
    flag: int
    committed: dict[int, int] | None
    def __new__(
        cls,
        group: str,
        topic: str,
        *,
        queue_count: int,
        tag_codes: tuple[int, ...] | None,
        committed: dict[int, int] | None,
        flag: int = 0,
        tails: TailSet,
    ) -> Self: ...
    def register(
        self,
        queue_id: int,
        position: PopQueue | None,
        source: tuple[QueueTail, MappedFile | None] | None,
    ) -> None: ...

@final
class PopView:
    key: tuple[str, str, str, str]
    own: PopTopic
    retries: tuple[PopTopic, ...]
    priority: int
    chance: int
    priority_chance: int
    shows_retry_topic: bool
    has_served: bool
    is_current: bool
    def take_served(self) -> list[tuple[str, int, int, int, int, int]]: ...
    def topic_of(self, name: str) -> PopTopic | None: ...
    def __new__(
        cls,
        key: tuple[str, str, str, str],
        own: PopTopic,
        retries: tuple[PopTopic, ...],
        *,
        priority: int = 0,
        chance: int = 0,
        priority_chance: int = 0,
        shows_retry_topic: bool = False,
    ) -> Self: ...

@final
class PopTable:
    is_reversed: bool
    uncounted: int
    held: HeldPulls
    notices: HeldPulls
    def __new__(
        cls,
        pulls: PullTable,
        checkpoints: CheckpointTable,
        *,
        draw: Callable[[], float],
        on_remaining: Callable[[PopView, int], object],
        on_work: Callable[[], object],
        broker_name: str,
        revive_queues: int,
        invisible_limit_ms: int,
        version: int,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def draw_start(self) -> int: ...
    def next_revive_queue(self) -> int: ...
    def count_pop(self) -> None: ...
    def add(self, view: PopView) -> None: ...
    def remove(self, view: PopView) -> None: ...
    def pick_victim(self) -> PopView | None: ...
