from typing import final

@final
class NewKeys:
    """The keys of one log that wait for their entries."""

    capacity: int
    def __new__(cls, capacity: int = ...) -> NewKeys:
        """`capacity` is a power of two; a place takes 24 bytes once it was used."""

    def contains(self, offset: int) -> bool:
        """True if the keys of the records from `offset` on are here."""

    def discard_before(self, offset: int) -> int | None:
        """Leave out the records before `offset`; return where the next begins."""

    def __len__(self) -> int:
        """Places in use; a record without keys needs one, too."""

    def clear(self) -> None:
        """Forget everything; nobody appends or takes meanwhile."""
