from collections.abc import Mapping
from typing import Self, final

@final
class Grants:
    allowed: int
    unknown: int
    unsigned: int

    def __new__(cls, rules: Mapping[int, tuple[str, ...]]) -> Self: ...
    def __len__(self) -> int: ...
    def unregister_all(self) -> None: ...
    def register(
        self,
        code: int,
        address: bytes,
        user: str,
        secret: str,
        values: tuple[str | None, ...],
    ) -> None: ...
    def allows(self, frame: bytes, address: bytes) -> bool: ...

@final
class SignedTemplates:
    def __init__(self, grants: Grants, varying: tuple[str, ...]) -> None: ...
    def allows(self, frame: bytes, address: bytes) -> tuple[bool, bool]: ...
