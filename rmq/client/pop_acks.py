"""PopAcks: gathers the acks of popped messages for 5 ms, and sends them together.

An ack that does not reach its broker is sent again until its lease expires.
"""

import logging
from typing import Final

import anyio

from rmq.client.client import Client
from rmq.client.core.pop import ack_requests
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientClosed, NoRoute
from rmq.client.popped_queue import ANY_QUEUE, PopLease
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import steady_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

JOIN_S: Final = 0.005
RETRY_S: Final = 1.0
"""Pause after acks that did not reach their broker."""


class PopAcks:
    """The acks of one consumer that wait; `group` is the name on the wire."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._waiting: dict[str, list[PopLease]] = {}

    def add(self, lease: PopLease) -> None:
        """Send the ack of a message soon, together with other acks."""
        if lease.is_changing:  # wait for the new handle of the broker
            return
        broker = lease.queue.queue.broker
        waiting = self._waiting.get(broker)
        if waiting is not None:
            waiting.append(lease)
            return
        self._waiting[broker] = [lease]
        self._client.spawn(self._send_all, broker)

    async def _send_all(self, broker: str) -> None:
        pause_s = JOIN_S
        while self._waiting[broker]:
            await anyio.sleep(pause_s)
            failed = await self._flush_broker(broker)
            self._waiting[broker] += failed
            pause_s = RETRY_S if failed else JOIN_S
        del self._waiting[broker]

    async def flush(self) -> None:
        """Send all acks that wait, once."""
        for broker in list(self._waiting):
            await self._flush_broker(broker)

    async def _flush_broker(self, broker: str) -> list[PopLease]:
        """Send the acks for a broker; return the acks that must be sent again."""
        leases, self._waiting[broker] = self._waiting[broker], []
        by_topic: dict[tuple[str, str], list[PopLease]] = {}
        for lease in leases:
            key = lease.queue.subscription.topic, lease.queue.queue.topic
            by_topic.setdefault(key, []).append(lease)
        failed: list[PopLease] = []
        for (wire_topic, topic), part in by_topic.items():
            queue = MessageQueue(topic, broker, ANY_QUEUE)
            try:
                handles = [each.handle for each in part]
                for request, _ in ack_requests(
                    handles, wire_topic, self._group, broker
                ):
                    await self._send(queue, request)
            except (PeerError, NoRoute, ClientClosed) as error:
                logger.info("cannot send acks to %s: %s", broker, Foreign(error))
                now_ms = steady_ms()
                failed += [each for each in part if each.expires_ms > now_ms]
        return failed

    async def _send(self, queue: MessageQueue, request: Command) -> None:
        answer = await self._client.request_broker(queue, request)
        if answer.code != ResponseCode.SUCCESS:
            logger.warning(
                "%s refuses acks of %s: %d: %s",
                queue.broker, queue.topic, answer.code, Foreign(answer.remark),
            )  # fmt: skip
