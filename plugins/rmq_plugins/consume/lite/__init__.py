"""Lite topics: thousands of small queues below one topic, consumed by POP in order.

Requests 200070, 200071 and 200074 to 200079; 200051 and 200053 with a `liteTopic`;
sends with the property `__LITE_TOPIC`. docs/clients/lite.md explains the rules.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import trio

from rmq.plugin import (
    BrokerContext,
    Command,
    Connection,
    Handler,
    Message,
    QueueKey,
    Register,
    Result,
    hookimpl,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.properties import INNER_MULTI_DISPATCH, LITE_TOPIC
from rmq.protocol.topics import LITE_PREFIX, lite_queue, may_dispatch
from rmq_plugins.consume.lite.config import LiteConfig

if TYPE_CHECKING:
    from rmq_plugins.consume.lite.parts import LiteParts


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve lite topics; only masters serve their consumers."""
    lite = LiteOnUse(broker, register.config(LiteConfig))
    register.interceptor({LITE_TOPIC}, set_lite_queue, first=True)
    register.handlers(
        lambda: lite.get_parts().pops,
        {RequestCode.POP_LITE_MESSAGE: "pop"},
        ports=("main",),
    )
    register.handlers(
        lambda: lite.get_parts().subscribing,
        {RequestCode.LITE_SUBSCRIPTION_CTL: "change_subscriptions"},
    )
    register.handlers(
        lambda: lite.get_parts().tools,
        {
            RequestCode.GET_BROKER_LITE_INFO: "show_broker",
            RequestCode.GET_PARENT_TOPIC_INFO: "show_parent",
            RequestCode.GET_LITE_TOPIC_INFO: "show_topic",
            RequestCode.GET_LITE_CLIENT_INFO: "show_client",
            RequestCode.GET_LITE_GROUP_INFO: "show_group",
            RequestCode.TRIGGER_LITE_DISPATCH: "trigger_dispatch",
        },
    )
    register.around(RequestCode.ACK_MESSAGE, lite.ack)
    register.around(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME, lite.change_invisible_time
    )
    register.around(RequestCode.DELETE_TOPIC_IN_BROKER, lite.delete_topic)
    register.around(RequestCode.DELETE_SUBSCRIPTIONGROUP, lite.delete_group)
    register.arrivals(lite.on_arrivals)
    register.on_close(lite.drop)
    register.on_stop(lite.stop)
    register.service(lite.serve, masters_only=True, restart=True)
    register.service(lite.expire, restart=True)


def set_lite_queue(message: Message) -> None:
    """Add the queue of its lite topic to the queues of a message."""
    lite = message.properties[LITE_TOPIC]
    if lite and may_dispatch(message.topic):
        message.set_property(INNER_MULTI_DISPATCH, lite_queue(message.topic, lite))


class LiteOnUse:
    """The parts for lite topics, created at the first request about lite topics, or
    with the first queue.

    Most brokers do not use them, and start without these modules.
    """

    def __init__(self, broker: BrokerContext, config: LiteConfig) -> None:
        self._broker = broker
        self._config = config
        self._parts: LiteParts | None = None
        self._first_use = trio.Event()
        queues = broker.queues
        if queues.lmq_count and any(
            name.startswith(LITE_PREFIX) for name in queues.topics()
        ):
            self.get_parts()

    def get_parts(self) -> "LiteParts":
        """Return the parts; the first call creates them."""
        if self._parts is None:
            from rmq_plugins.consume.lite.parts import LiteParts

            self._parts = LiteParts(self._broker, self._config)
            self._first_use.set()
        return self._parts

    def ack(self, handler: Handler, request: Command, connection: Connection) -> Result:
        """Ack a message of a lite topic; pass other acks to the handler."""
        if not request.ext_fields.get("liteTopic", "").strip():
            return handler(request, connection)
        return self.get_parts().acks.ack(request, connection)

    def change_invisible_time(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Hide a message of a lite topic longer; pass other requests to the handler."""
        if not request.ext_fields.get("liteTopic", "").strip():
            return handler(request, connection)
        return self.get_parts().acks.change_invisible_time(request, connection)

    def delete_topic(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Delete the lite topics of a parent topic, then the parent topic."""
        if self._parts is None:
            return handler(request, connection)
        return self._parts.expiry.delete_topic(handler, request, connection)

    def delete_group(
        self, handler: Handler, request: Command, connection: Connection
    ) -> Result:
        """Delete a lite group together with its offsets."""
        if self._parts is None:
            return handler(request, connection)
        return self._parts.expiry.delete_group(handler, request, connection)

    def on_arrivals(self, touched: Mapping[QueueKey, int]) -> None:
        """Offer the lite topics that got messages."""
        if not self._broker.queues.lmq_count:
            return
        names = [name for name, _ in touched if name.startswith(LITE_PREFIX)]
        if names:
            self.get_parts().dispatch.on_arrivals(names)

    def drop(self, connection: Connection) -> None:
        """Remove the held POPs of a closed connection."""
        if self._parts is not None:
            self._parts.held.drop(connection)

    def stop(self) -> None:
        """Answer the held POPs."""
        if self._parts is not None:
            self._parts.held.end_all()

    async def serve(self) -> None:
        """Run the tasks for consumers, until cancelled."""
        await self._first_use.wait()
        parts = self.get_parts()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(parts.held.run)
            nursery.start_soon(parts.dispatch.run)
            nursery.start_soon(parts.dispatch.watch_clients)
            nursery.start_soon(parts.subscribing.watch_clients)

    async def expire(self) -> None:
        """Delete expired lite topics, until cancelled."""
        await self._first_use.wait()
        await self.get_parts().expiry.run()
