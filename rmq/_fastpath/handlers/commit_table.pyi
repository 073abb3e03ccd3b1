from collections.abc import Callable
from typing import Self, final

@final
class CommitPair:
    def __init__(self, group: str, topic: str) -> None: ...

@final
class CommitTable:
    def __new__(
        cls,
        on_commits: Callable[[list[tuple[str, str, int, int]]], object],
        commit_limit: int = 2_048,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def register(self, group: str, topic: str, queue_id: int) -> None: ...
    def unregister_all(self) -> None: ...
