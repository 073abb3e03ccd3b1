from typing import Self, final

from rmq._fastpath.reactor.connections import Connections
from rmq._fastpath.reactor.grants import Grants
from rmq._fastpath.reactor.held_replies import HeldReplies
from rmq._fastpath.reactor.native import NativeHandler

@final
class NativeTable:
    """The compiled handlers of a process, by listener and request code."""

    def __new__(cls, connections: Connections, held: HeldReplies) -> Self: ...
    def register(self, listener: int, code: int, handler: NativeHandler) -> None:
        """Offer the frames of a code on one listener to a compiled handler first."""

    def require_grants(self, grants: Grants) -> None:
        """Serve only requests that a guard in Python has allowed before."""

    def counts(self) -> dict[tuple[int, int], tuple[int, dict[str, int]]]:
        """{(listener, code): (served, {reason: declined})} of the compiled handlers."""
