from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.log.queue_tail import TailSet

@final
class AckMarks:
    """The messages of a checkpoint, with a bit for each open one."""

    count: int
    open: int
    """Bit i: the message at `offsets[i]` is neither acked nor revived."""

    is_written: bool
    """Whether the log has the checkpoint, so that it has to learn of acks."""

    def __new__(
        cls, offsets: tuple[int, ...], bits: int, *, is_written: bool = False
    ) -> Self:
        """`bits` are the open ones; ValueError for more than 64 offsets."""

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all messages."""

    def open_offsets(self) -> list[int]:
        """Return the offsets of the open messages."""

    def clear(self, offset: int) -> bool:
        """Clear the bit of an offset; False if it is not open."""

@final
class AckTable:
    """The checkpoints whose acks compiled code serves."""

    def __new__(
        cls,
        tails: TailSet,
        on_acks: Callable[[list[tuple[tuple[str, str, int, int, int], int]]], object],
        batch_limit: int = 2_048,
    ) -> Self:
        """`on_acks` gets the acks of a poll that end a checkpoint, or of written ones.

        Their bits are cleared by then: [(key, offset)]. It gets at most `batch_limit`
        per poll; Python serves the others.
        """

    def __len__(self) -> int: ...
    def add(self, key: tuple[str, str, int, int, int], marks: AckMarks) -> None:
        """Serve acks of a checkpoint. Its key: topic, group, queue, start, time of the
        POP.

        The key must be new in the table.
        """

    def remove(self, marks: AckMarks) -> None:
        """Leave acks of a checkpoint to Python; no effect if it is not in the table."""

    def unregister_all(self) -> None:
        """Remove all checkpoints and leave their acks to Python."""
