from typing_extensions import disjoint_base

__pyx_capi__: dict[str, object]

@disjoint_base
class Templates:
    """One learned header at a time, for tests and benchmarks."""

    def __init__(self, names: tuple[str, ...], varying: tuple[str, ...]) -> None: ...
    def read(self, header: bytes) -> tuple[bool, int, dict[bytes, bytes]] | None:
        """Return (has matched, opaque, values by name), or None if not plain."""
