"""Request 20003: a view of the broker, for `rmq doctor`, `rmq top` and the console.

Field `view` names it, the other fields are its query: `q`, `sort`, `up`, `from`, `n`,
`system`, `name`.  Body: a JSON object.
"""

import msgspec

from rmq.errors import RequestRejected
from rmq.plugin import VIEWS, BrokerContext, Connection
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command


class ViewHandler:
    """Java's brokers have no such request."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def show(self, request: Command, connection: Connection) -> Command:
        """Answer the view."""
        name = request.ext_fields.get("view", "")
        view = VIEWS.get(name)
        if view is None:
            raise RequestRejected(
                ResponseCode.INVALID_PARAMETER,
                f"view={name[:20]} is none of {', '.join(VIEWS)}",
            )
        found = await view(self._broker, request.ext_fields)
        return request.reply(body=msgspec.json.encode(found))
