from typing_extensions import disjoint_base

@disjoint_base
class NativeHandler:
    fields: tuple[str, ...]
    varying: tuple[str, ...]
    reasons: tuple[str, ...]
    contract_version: int
    def __init__(
        self,
        fields: tuple[str, ...],
        varying: tuple[str, ...],
        version: int,
        reasons: tuple[str, ...] = ("unusual",),
    ) -> None: ...
