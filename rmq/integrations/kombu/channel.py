"""Channel: publishing, queues, exchanges and deliveries, as kombu's channels have them.

The base class has kombu's tables of consumers and of unacknowledged messages. The
broker routes, acknowledges and waits.

A queue that is declared as auto-delete or exclusive is *ephemeral*. A cursor of this
process reads such a queue, from its first declaration on. All other queues are durable.
"""

import itertools
import logging
import math
from collections import deque
from functools import partial
from queue import Empty
from typing import Any, Final

from kombu.exceptions import ChannelError
from kombu.transport import base, virtual

from rmq._fastpath.client.messages import ReceivedMessage, SendResult
from rmq.client.core.leases import Arrival, Lease
from rmq.integrations.kombu.envelope import (
    Raw,
    Times,
    due_ms_of,
    is_expired,
    mark_delivery,
    pack,
    priority_of,
    properties_of,
    unpack,
)
from rmq.integrations.kombu.qos import QoS
from rmq.integrations.kombu.routing import (
    TOPIC,
    Binding,
    plan_durable,
    plan_ephemeral,
)
from rmq.integrations.names import escape
from rmq.integrations.recalls import keep_handle
from rmq.integrations.settling import REQUEUES, Origin, Settler
from rmq.integrations.sources import (
    MAX_MESSAGES,
    PopSource,
    PullSource,
    Source,
)
from rmq.integrations.task_link import Refused, TaskLink
from rmq.outgoing.connection import date_ms
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import KEYS, TAGS, TIMER_DELIVER_MS

logger = logging.getLogger(__name__)

MAX_PRIORITY: Final = 255
MAX_BODY_SIZE: Final = 15 << 20
"""Maximum bytes of a body: brokers close a connection that sends a frame of 16 MiB."""

MIB: Final = 1 << 20
TOO_EARLY_MS: Final = 3_000
"""A task that arrives more than this time before its ETA goes back into the timer."""

NOT_KEPT: Final = ("x-expires", "x-message-ttl", "x-max-length", "x-max-length-bytes")
"""Arguments of queues that have no effect."""

_tags = itertools.count(1)
_reported: set[str] = set()


class Channel(virtual.Channel):
    """A channel of a `Transport`."""

    QoS = QoS
    supports_fanout = True
    body_encoding = None
    from_transport_options = ()

    def __init__(self, connection: Any, **kwargs: Any) -> None:  # noqa: ANN401 - kombu
        self.link: TaskLink = connection.link
        self.settler: Settler = connection.settler
        self.options = connection.options
        self.visibility_s: float = self.options.visibility_timeout
        self.names = connection.names
        self.topics = connection.topics
        self._cursors = connection.cursors
        self._times = Times(self.options.native_eta, self.options.max_delay_s * 1_000)
        self._consuming: set[str] = set()
        self._without_ack: set[str] = set()
        self._sources: dict[str, list[Source]] = {}
        self._waiting: dict[str, deque[Raw]] = {}
        self._gathers = False
        super().__init__(connection, **kwargs)

    # -- publishing

    def basic_publish(
        self,
        message: Raw,
        exchange: str,
        routing_key: str,
        **kwargs: Any,  # noqa: ANN401 - kombu
    ) -> None:
        """Store a message; Refused or a connection error if the broker did not."""
        message["properties"]["delivery_info"].update(
            exchange=exchange, routing_key=routing_key
        )
        if self._is_queue(exchange, routing_key):
            self._put(routing_key, message)
            return
        topic = self.names.exchange(exchange)
        self.topics.ensure(topic)
        self._store(topic, 0, message, escape(routing_key))

    def _is_queue(self, exchange: str, routing_key: str) -> bool:
        """Whether messages to an exchange are stored in the topic of a queue."""
        if not exchange:
            return True
        return Binding(exchange, self.typeof(exchange).type, routing_key).is_queue

    def _put(self, queue: str, message: Raw, **kwargs: Any) -> None:  # noqa: ANN401 - kombu
        """Store a message for a queue; a queue without a topic belongs to a process."""
        topic = self.names.topic(queue)
        queues = self.topics.queue_count(topic)
        if queues is None:
            shared = self.names.exchange("")
            self.topics.ensure(shared)
            self._store(shared, 0, message, escape(queue))
            return
        self._store(topic, priority_of(message, queues), message, "")

    def _store(self, topic: str, queue_id: int, message: Raw, tag: str) -> None:
        body = pack(message)
        if len(body) > MAX_BODY_SIZE:
            raise ChannelError(
                f"a message of {len(body) / MIB:.1f} MiB is too large for the topic "
                f"{topic}: pass a reference to the data"
            )
        properties = properties_of(message, tag, date_ms(), self._times)
        answer = self.link.send(topic, queue_id, body, properties)
        if isinstance(answer, SendResult):
            if answer.recall_handle and KEYS in properties:
                keep_handle(properties[KEYS], answer.recall_handle)
            return
        self.topics.discard(topic)
        raise Refused(
            self.link.address,
            answer,
            f"the broker refuses a message of {len(body) / MIB:.1f} MiB for {topic}",
            _hint(answer, properties),
        )

    # -- queues

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:  # noqa: ANN401 - kombu
        if queue in self._cursors:
            return True
        return self.topics.queue_count(self.names.topic(queue)) is not None

    def _new_queue(
        self,
        queue: str,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,  # noqa: ANN401 - kombu
    ) -> None:
        """Create the topic of a durable queue, or the cursor of an ephemeral one."""
        arguments = arguments or {}
        if auto_delete or exclusive:
            shared = self.names.exchange("")
            self.topics.ensure(shared)
            if queue not in self._cursors:
                self._cursors.add(queue, {shared: self.topics.end_of(shared)})
            return
        for name in NOT_KEPT:
            if name in arguments and name not in _reported:
                _reported.add(name)
                logger.warning("queue %s: rmq has no %s", queue, name)
        most = int(arguments.get("x-max-priority") or 0)
        self.topics.ensure(self.names.topic(queue), min(most, MAX_PRIORITY) + 1)

    def prepare_queue_arguments(
        self,
        arguments: dict[str, Any],
        **kwargs: Any,  # noqa: ANN401 - kombu
    ) -> Any:  # noqa: ANN401 - kombu
        """Return the arguments of a queue with RabbitMQ's names."""
        return base.to_rabbitmq_queue_arguments(arguments, **kwargs)

    def _queue_bind(
        self, exchange: str, routing_key: str, pattern: str | None, queue: str
    ) -> None:
        """Let a queue read the messages of an exchange from now on."""
        binding = self._make_binding(exchange, routing_key)
        if binding.is_queue and (routing_key == queue or queue in self._cursors):
            return
        name = self.names.topic if binding.is_queue else self.names.exchange
        topic = name(exchange)
        self.topics.ensure(topic)
        cursors = self._cursors.get(queue)
        if cursors is None:
            self.topics.begin_at_end(topic, self.names.group(queue))
        elif topic not in cursors:
            cursors[topic] = self.topics.end_of(topic)
        self._sources.pop(queue, None)

    def _make_binding(self, exchange: str, key: str) -> Binding:
        kind = self.typeof(exchange).type
        pattern = ""
        if kind == TOPIC:
            pattern = self.typeof(exchange).key_to_pattern(key)
        return Binding(exchange, kind, key, pattern)

    def sources_of(self, queue: str) -> list[Source]:
        """Return the sources of a queue."""
        known = self._sources.get(queue)
        if known is not None:
            return known
        bindings = [
            self._make_binding(each.exchange, each.routing_key)
            for each in self.state.queue_bindings(queue)
        ]
        cursors = self._cursors.get(queue)
        found: list[Source] = []
        if cursors is None:
            group = self.names.group(queue)
            for topic, tags, patterns in plan_durable(self.names, queue, bindings):
                found.append(PopSource(self, queue, topic, group, tags, patterns))
        else:
            for topic, tags, patterns in plan_ephemeral(self.names, queue, bindings):
                if topic not in cursors:
                    cursors[topic] = self.topics.end_of(topic)
                found.append(PullSource(self, queue, topic, cursors, tags, patterns))
        self._sources[queue] = found
        return found

    def _size(self, queue: str) -> int:
        if queue in self._cursors:
            return len(self._waiting.get(queue, ()))
        return sum(
            self.topics.count_waiting(each.topic, each.group)
            for each in self.sources_of(queue)
            if isinstance(each, PopSource)
        )

    def _purge(self, queue: str) -> int:
        """Skip the messages of a queue; return their number."""
        self._waiting.pop(queue, None)
        cursors = self._cursors.get(queue)
        if cursors is not None:
            cursors.update((topic, self.topics.end_of(topic)) for topic in cursors)
            return 0
        return sum(
            self.topics.purge(each.topic, each.group)
            for each in self.sources_of(queue)
            if isinstance(each, PopSource)
        )

    def queue_delete(
        self,
        queue: str,
        if_unused: bool = False,
        if_empty: bool = False,
        **kwargs: Any,  # noqa: ANN401 - kombu
    ) -> None:
        """Empty a queue and forget its bindings; its topic stays."""
        if if_empty and self._size(queue):
            return
        if not self._cursors.remove(queue):
            self._purge(queue)
        self._sources.pop(queue, None)
        for each in list(self.state.queue_bindings(queue)):
            self.state.binding_delete(queue, each.exchange, each.routing_key)
        self.state.queue_bindings_delete(queue)

    # -- consumers

    def basic_consume(
        self,
        queue: str,
        no_ack: bool,
        callback: Any,  # noqa: ANN401 - kombu
        consumer_tag: str,
        **kwargs: Any,  # noqa: ANN401 - kombu
    ) -> None:
        """Begin to read a queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        (self._without_ack.add if no_ack else self._without_ack.discard)(queue)
        self.sources_of(queue)
        self._consuming.add(queue)
        self.connection.begin_requests()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Read no more for a consumer."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue not in self._active_queues:
            self._consuming.discard(queue)

    @property
    def active_sources(self) -> list[Source]:
        """The sources of the queues that have consumers."""
        return [each for queue in self._consuming for each in self.sources_of(queue)]

    @property
    def known_sources(self) -> list[Source]:
        """All sources, also sources without consumers."""
        return [each for sources in self._sources.values() for each in sources]

    def begin_requests(self, now_s: float) -> float:
        """Begin the next requests; return when a pause of a source ends."""
        next_s = math.inf
        for source in self.active_sources:
            source.begin_next(now_s)
            if not source.is_busy and source.pause_until_s > now_s:
                next_s = min(next_s, source.pause_until_s)
        for queue in self._consuming & self._waiting.keys():
            for raw in self._waiting.pop(queue):
                self.link.call_soon(partial(self._deliver, queue), raw)
        return next_s

    # -- functions that sources call

    @property
    def prefetch_count(self) -> int:
        """The limit of unacknowledged messages; 0 for no limit."""
        return int(self.qos.prefetch_count or 0)

    def count_free(self) -> int:
        """Return the number of messages that may be requested now."""
        count = self.prefetch_count
        if not count:
            return MAX_MESSAGES
        asked = sum(each.asked for each in self.known_sources)
        return count - int(self.qos.open_count) - asked

    def take_popped(
        self, source: PopSource, message: ReceivedMessage, lease: Lease
    ) -> None:
        """Deliver a popped message, or settle it."""
        settler = self.settler
        lease.tag = tag = str(next(_tags))
        known = message.properties
        requeues = known.get(REQUEUES, "0")
        deliveries = message.reconsume_times + int(
            requeues if requeues.isdecimal() and len(requeues) < 10 else 0
        )
        raw = unpack(message.body)
        queue_id: Any = message.queue
        if message.reconsume_times:
            queues = self.topics.queue_count(source.topic) or 1
            queue_id = priority_of(raw, queues)
        origin = Origin(
            source.topic,
            source.group,
            queue_id,
            message.physical_offset,
            message.body,
            {name: known[name] for name in (KEYS, TAGS) if name in known},
            deliveries,
        )
        if settler.add(lease, origin) is not Arrival.NEW:
            return
        if self.connection is not None:
            self.connection.on_lease()
        now_ms = date_ms()
        due_ms = due_ms_of(raw) if self._times.is_native else None
        limit = self.options.max_deliveries
        key = str(raw["properties"]["delivery_info"].get("routing_key") or "")
        if not source.matches(key, message.tags) or is_expired(
            raw, message.born_ms, now_ms
        ):
            settler.acknowledge(tag)
        elif due_ms is not None and due_ms - TOO_EARLY_MS > now_ms:
            tags = origin.properties.get(TAGS, "")
            again = properties_of(raw, tags, now_ms, self._times)
            settler.store_again(tag, queue_id, again)
        elif limit and deliveries >= limit:
            settler.move_to_dead_letters(tag)
        else:
            mark_delivery(raw, tag, is_again=deliveries > 0)
            self._deliver(source.queue, raw)

    def take_pulled(self, source: Source, messages: list[ReceivedMessage]) -> None:
        """Deliver messages to a queue of this process, or drop them.

        Messages of one pull are delivered in the order of their priorities.
        """
        found: list[Raw] = []
        for message in messages:
            raw = unpack(message.body)
            key = str(raw["properties"]["delivery_info"].get("routing_key") or "")
            is_old = is_expired(raw, message.born_ms, date_ms())
            if source.matches(key, message.tags) and not is_old:
                mark_delivery(raw, str(next(_tags)), is_again=False)
                found.append(raw)
        found.sort(key=lambda raw: -priority_of(raw, MAX_PRIORITY + 1))
        for raw in found:
            self._deliver(source.queue, raw)

    def _deliver(self, queue: str, raw: Raw) -> None:
        """Pass a message to the consumer of its queue."""
        raw["queue"] = queue
        tag = raw["properties"]["delivery_tag"]
        if self._gathers:
            self._waiting.setdefault(queue, deque()).append(raw)
            return
        transport = self.connection
        callback = None if transport is None else transport._callbacks.get(queue)
        if callback is None:
            self.settler.give_back([tag])
            return
        transport.delivered += 1
        if queue in self._without_ack:
            self.settler.acknowledge(tag)
        callback(raw)

    # -- one message at a time

    def _get(self, queue: str, timeout: float | None = None) -> Raw:
        """Return the next message of a queue; Empty without one."""
        waiting = self._waiting.setdefault(queue, deque())
        if not waiting:
            self._gathers = True
            try:
                for source in self.sources_of(queue):
                    if isinstance(source, PullSource):
                        source.pull_all()
                    elif isinstance(source, PopSource) and source.pop_one() and waiting:
                        break
            finally:
                self._gathers = False
        if not waiting:
            raise Empty
        first = max(waiting, key=lambda raw: priority_of(raw, MAX_PRIORITY + 1))
        waiting.remove(first)
        return first

    def basic_get(self, queue: str, no_ack: bool = False, **kwargs: Any) -> Any:  # noqa: ANN401 - kombu
        """Return a message, or None."""
        message = super().basic_get(queue, no_ack=no_ack, **kwargs)
        if message is not None and no_ack:
            self.settler.acknowledge(message.delivery_tag)
        return message

    def requeue(self, message: Any, tag: str) -> None:  # noqa: ANN401 - kombu
        """Let a message be delivered again, at once."""
        if tag in self.settler.origins:
            self.settler.requeue(tag)
        elif message is not None:
            raw = message._raw
            raw["properties"]["delivery_info"]["redelivered"] = True
            self._waiting.setdefault(raw["queue"], deque()).append(raw)

    def close(self) -> None:
        """Cancel the consumers; give unacknowledged messages back."""
        if not self.closed and self.link.is_foreign:
            self.do_restore = False
        super().close()


def _hint(answer: Command, properties: dict[str, str]) -> str:
    """Return the remedy of a refused message."""
    if answer.code == ResponseCode.MESSAGE_ILLEGAL:
        if TIMER_DELIVER_MS in properties:
            return "the options max_delay_s and native_eta are for tasks with an ETA"
        return "pass a reference to large data, or raise maxMessageSize of the broker"
    return ""
