from collections.abc import Mapping
from typing import Self, final

@final
class Grants:
    """Grants of a broker; `rules` has the fields that decide, by request code."""

    allowed: int
    unknown: int
    unsigned: int

    def __new__(cls, rules: Mapping[int, tuple[str, ...]]) -> Self: ...
    def __len__(self) -> int: ...
    def unregister_all(self) -> None:
        """Remove all grants: users or policies have changed."""

    def register(
        self,
        code: int,
        address: bytes,
        user: str,
        secret: str,
        values: tuple[str | None, ...],
    ) -> None:
        """Add a grant for a request that the guard has just allowed.

        `values` are those of the rule's fields, `address` is that of the peer without
        its port. A code without a rule, and names that are too long, are ignored.
        """

    def allows(self, frame: bytes, address: bytes) -> bool:
        """True if an encoded request would be served; for tests and benchmarks."""

@final
class SignedTemplates:
    """One learned header of signed requests at a time, for tests and benchmarks."""

    def __init__(self, grants: Grants, varying: tuple[str, ...]) -> None: ...
    def allows(self, frame: bytes, address: bytes) -> tuple[bool, bool]:
        """Return (has the header matched, may it be served)."""
