"""Request 20005: the changes of the last week, for `rmq admin auditLog`.

Field `maxNum`: the number of newest changes to return. Body of the answer: a JSON list
of objects with `time_ms`, `user`, `source`, `action`, `subject`, `change`, the oldest
first.
"""

from typing import Final

import msgspec

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

DEFAULT_COUNT: Final = 100


class AuditHandler:
    """Serves the audit log; Java's brokers do not record changes."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def list_changes(self, request: Command, connection: Connection) -> Command:
        """Answer the newest changes."""
        text = request.ext_fields.get("maxNum", str(DEFAULT_COUNT))
        if not text.isdecimal() or not 0 < len(text) < 10:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"maxNum={text[:20]} is not a number of entries",
            )
        changes = list(self._broker.audit.all())[-int(text) :]
        return request.reply(body=msgspec.json.encode(changes))
