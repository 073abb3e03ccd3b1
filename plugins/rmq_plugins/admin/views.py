"""Requests 20003 and 20004: views of the broker, and its log as it grows.

Request 20003 is for `rmq doctor`, `rmq top` and the console.

Field `view` names the view, the other fields are its query: `q`, `sort`, `up`, `from`,
`n`, `system`, `name`; for messages `topic`, `queue`, `offset`, `key`, `id`, `at`.
Body: a JSON object.  A view of messages also needs the right to read their topic.

Request 20004 is for `rmq tail`: messages of all topics in the order of the log, see
`follow_log`. The answer only counts the messages of topics that the user may not read.
"""

import msgspec

from rmq.access.actions import Action
from rmq.plugin import BrokerContext, Connection
from rmq.protocol.command import Command


class ViewHandler:
    """Serves views; Java's brokers have no such request."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    async def show_view(self, request: Command, connection: Connection) -> Command:
        """Answer the view."""

        def require(topic: str) -> None:
            rights = self._broker.rights
            rights.require(request, connection, topic, Action.GET, Action.SUB)

        name = request.ext_fields.get("view", "")
        found = await self._broker.monitor.show_view(name, request.ext_fields, require)
        return request.reply(body=msgspec.json.encode(found))

    async def follow_log(self, request: Command, connection: Connection) -> Command:
        """Answer the new messages of the log; wait if there are none."""
        rights, user = self._broker.rights, self._broker.rights.user_of(request)

        def may_read(topic: str) -> bool:
            return rights.is_allowed(user, connection, topic, Action.GET, Action.SUB)

        found = await self._broker.monitor.follow_log(request.ext_fields, may_read)
        return request.reply(body=msgspec.json.encode(found))
