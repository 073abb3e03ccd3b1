from typing import final

@final
class NewKeys:
    """The keys of one log that wait for their entries."""

    capacity: int
    def __new__(cls, capacity: int = ...) -> NewKeys:
        """`capacity` is a power of two; each used key takes 24 bytes."""

    def contains(self, offset: int) -> bool:
        """True if the keys of the records from `offset` on are here."""

    def discard_before(self, offset: int) -> int | None:
        """Discard records before `offset`; return the offset of the next, or None."""

    def __len__(self) -> int:
        """Number of keys; a record without keys counts as one."""

    def clear(self) -> None:
        """Discard all keys; no thread may append or consume meanwhile."""
