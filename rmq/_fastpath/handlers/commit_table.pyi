from collections.abc import Callable
from typing import Self, final

@final
class CommitPair:
    """A group's offsets in a topic, as far as they were shown."""

    def __init__(self, group: str, topic: str) -> None: ...

@final
class CommitTable:
    """What the handlers of all codes with offsets share."""

    def __new__(
        cls,
        on_commits: Callable[[list[tuple[str, str, int, int]]], object],
        commit_limit: int = 2_048,
    ) -> Self:
        """`on_commits` gets those of a poll: [(group, topic, queue id, offset)].

        Of one poll it gets `commit_limit` at most; Python takes the others.
        """

    def __len__(self) -> int: ...
    def register(self, group: str, topic: str, queue_id: int) -> None:
        """Let compiled code take further offsets of this queue.

        Beyond 65,536 pairs one is forgotten; queues from 65,536 on are ignored.
        """

    def unregister_all(self) -> None:
        """Leave all offsets to Python until their queues are shown again."""
