"""Request 20003: a view of the broker, for `rmq doctor`, `rmq top` and the console.

Field `view` names it, the other fields are its query: `q`, `sort`, `up`, `from`, `n`,
`system`, `name`; for messages `topic`, `queue`, `offset`, `key`, `id`, `at`.  Body: a
JSON object.  Messages need the right to read their topic, too.
"""

import msgspec

from rmq.access.policies import Action
from rmq.plugin import BrokerContext, Connection, show_view
from rmq.protocol.command import Command


class ViewHandler:
    """Java's brokers have no such request."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def show(self, request: Command, connection: Connection) -> Command:
        """Answer the view."""

        def require(topic: str) -> None:
            rights = self._broker.rights
            rights.require(request, connection, topic, Action.GET, Action.SUB)

        name = request.ext_fields.get("view", "")
        found = await show_view(self._broker, name, request.ext_fields, require)
        return request.reply(body=msgspec.json.encode(found))
