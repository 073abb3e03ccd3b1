"""OverloadGuard: refuses messages that cannot be stored, with the real cause.

There is no queue of waiting sends that could grow: a slow broker stops reading its
sockets.  The only case left is a store that cannot write.
"""

from rmq.protocol.codes import ResponseCode
from rmq.store.message_store import MessageStore

NOT_AVAILABLE_REMARK = "service not available now."


class OverloadGuard:
    """Known in Java as `BrokerFastFailure`."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def reject_send(self) -> tuple[int, str] | None:
        """Return code and remark if a send must be refused, else None."""
        if self._store.durability.is_writable:
            return None
        cause = self._store.durability.refuse_reason
        return ResponseCode.SERVICE_NOT_AVAILABLE, f"{NOT_AVAILABLE_REMARK} {cause}"
