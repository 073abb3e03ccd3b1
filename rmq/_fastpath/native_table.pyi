from typing import final

from rmq._fastpath.native import NativeHandler

__pyx_capi__: dict[str, object]

@final
class NativeTable:
    """The compiled handlers of a process, by listener and request code."""

    def register(self, listener: int, code: int, handler: NativeHandler) -> None:
        """Let a compiled handler see the frames of a code first, on one listener."""

    def counts(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]:
        """{(listener, code): (served, {reason: declined})} of the compiled handlers."""
