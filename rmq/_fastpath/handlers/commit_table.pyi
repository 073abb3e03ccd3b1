from collections.abc import Callable
from typing import Self, final

@final
class CommitPair:
    """A group and a topic, with the registered queues."""

    def __init__(self, group: str, topic: str) -> None: ...

@final
class CommitTable:
    """State that the handlers of all codes with offsets share."""

    def __new__(
        cls,
        on_commits: Callable[[list[tuple[str, str, int, int]]], object],
        commit_limit: int = 2_048,
    ) -> Self:
        """`on_commits` gets those of a poll: [(group, topic, queue id, offset)].

        It gets at most `commit_limit` per poll; Python serves the others.
        """

    def __len__(self) -> int: ...
    def register(self, group: str, topic: str, queue_id: int) -> None:
        """Serve further commits to this queue in compiled code.

        Above 65,536 pairs it evicts one; it ignores queues from 65,536 on.
        """

    def unregister_all(self) -> None:
        """Leave all commits to Python until their queues are registered again."""
