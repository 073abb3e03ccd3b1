from typing_extensions import disjoint_base

__pyx_capi__: dict[str, object]

@disjoint_base
class Templates:
    def __init__(self, names: tuple[str, ...], varying: tuple[str, ...]) -> None: ...
    def read(self, header: bytes) -> tuple[bool, int, dict[bytes, bytes]] | None: ...
