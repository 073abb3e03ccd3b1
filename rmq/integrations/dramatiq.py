"""dramatiq on rmq: `dramatiq.set_broker(RmqBroker("127.0.0.1:9876"))`.

A queue is a topic and a group of its name, read by POP. A message with a delay waits in
the timer of the broker, not in a worker. So there are no `.DQ` queues. The option
`broker_priority` of an actor chooses the queue of the topic, larger first.
"""

import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, Final

import dramatiq
from dramatiq.errors import (
    ConnectionClosed,
    DecodeError,
    QueueJoinTimeout,
    QueueNotFound,
)

from rmq._fastpath.client.messages import SendResult
from rmq.core.errors import PeerError
from rmq.integrations.names import Names
from rmq.integrations.queue_reader import QueueReader
from rmq.integrations.task_link import Refused, TaskLink
from rmq.integrations.topics import Topics
from rmq.outgoing.connection import date_ms
from rmq.outgoing.identity import ANONYMOUS, Identity
from rmq.protocol.properties import KEYS, TIMER_DELIVER_MS

JOIN_STEP_S: Final = 0.02
TIMER_SLACK_S: Final = 2.0
"""Maximum delay of a broker's timer, whose precision is a second."""

DEFAULT_TIMEOUT_MS: Final = 30_000
MAX_DELAYED: Final = 10_000
"""Maximum number of delayed messages of a queue for which `join` waits: the latest
messages.
"""


class DelayedMessages:
    """Delayed messages of one queue that were sent here and are not delivered yet.

    Many programs only send and are not notified of deliveries, so the oldest entries
    are discarded.
    """

    def __init__(self) -> None:
        self._due_s: OrderedDict[str, float] = OrderedDict()
        """The latest delivery time of each message."""

    def add(self, message_id: str, due_s: float) -> None:
        """Remember a message."""
        self._due_s[message_id] = due_s
        if len(self._due_s) > MAX_DELAYED:
            self._due_s.popitem(last=False)

    def discard(self, message_id: str) -> None:
        """Forget a message that was delivered."""
        self._due_s.pop(message_id, None)

    def __len__(self) -> int:
        now_s = time.monotonic()
        for message_id, due_s in list(self._due_s.items()):
            if due_s < now_s:
                self.discard(message_id)
        return len(self._due_s)


class RmqBroker(dramatiq.Broker):
    """A broker of dramatiq.

    Args:
        name_server (str): `host:port`; several are separated by `;`.
        identity (Identity): user and TLS.
        namespace (str): begins all names, as a virtual host.
        visibility_s (float): seconds until another worker gets the messages of a dead
            worker.
        max_priority (int): the largest `broker_priority`; a topic has one queue for
            each of 0 to `max_priority`.
        middleware (list): as in other brokers of dramatiq.
    """

    def __init__(
        self,
        name_server: str = "127.0.0.1:9876",
        *,
        identity: Identity = ANONYMOUS,
        namespace: str = "",
        visibility_s: float = 60.0,
        max_priority: int = 0,
        middleware: list[Any] | None = None,
    ) -> None:
        super().__init__(middleware)
        self.actor_options |= {"broker_priority"}
        self.visibility_s = visibility_s
        self.names = Names(namespace)
        self._servers = [each.strip() for each in name_server.split(";")]
        self._identity = identity
        self.queue_count = max_priority + 1
        self._local = threading.local()
        self._links: weakref.WeakSet[TaskLink] = weakref.WeakSet()
        self._consumers: list[RmqConsumer] = []
        self._delayed: dict[str, DelayedMessages] = {}

    def new_link(self) -> TaskLink:
        """Return a separate link, which is not connected."""
        return TaskLink(self._servers, self._identity)

    def _topics(self) -> Topics:
        """Return the topics of a link of this thread."""
        topics: Topics | None = getattr(self._local, "topics", None)
        if topics is None:
            link = self.new_link()
            self._links.add(link)
            self._local.link = link
            self._local.topics = topics = Topics(link, may_create=True)
            weakref.finalize(topics, link.close)  # at the end of the thread
        return topics

    @property
    def link(self) -> TaskLink:
        """The link of this thread."""
        self._topics()
        link: TaskLink = self._local.link
        return link

    def close(self) -> None:
        """Close the connections of all threads."""
        for consumer in list(self._consumers):
            consumer.close()
        for link in list(self._links):
            link.close()
        self._links.clear()
        self._local = threading.local()

    # -- queues

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue; its topic is created at the first use."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self._delayed[queue_name] = DelayedMessages()
            self.emit_after("declare_queue", queue_name)

    def ensure_topic(self, topics: Topics, queue_name: str) -> str:
        """Return the topic of a queue; create the topic if it does not exist."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        topic = self.names.topic(queue_name)
        topics.ensure(topic, self.queue_count)
        return topic

    def enqueue(
        self, message: "dramatiq.Message[Any]", *, delay: int | None = None
    ) -> "dramatiq.Message[Any]":
        """Store a message; with a delay in milliseconds it waits in the broker."""
        self.emit_before("enqueue", message, delay)
        try:
            topic = self.ensure_topic(self._topics(), message.queue_name)
            if delay:
                self._store_delayed(message, topic, delay)
            else:
                self._store(message, topic, {})
        except (OSError, PeerError) as error:
            raise ConnectionClosed(str(error)) from error
        self.emit_after("enqueue", message, delay)
        return message

    def _store_delayed(
        self, message: "dramatiq.Message[Any]", topic: str, delay: int
    ) -> None:
        """Store a message for later; `join` waits for it, unless this fails."""
        queue_name, message_id = message.queue_name, message.message_id
        due_s = time.monotonic() + delay / 1_000 + TIMER_SLACK_S
        # before the send: a consumer may get the message before its answer
        self._delayed[queue_name].add(message_id, due_s)
        with ExitStack() as undo:
            undo.callback(self.forget_delay, queue_name, message_id)
            self._store(message, topic, {TIMER_DELIVER_MS: str(date_ms() + delay)})
            undo.pop_all()

    def _store(
        self, message: "dramatiq.Message[Any]", topic: str, properties: dict[str, str]
    ) -> None:
        """Send a message; Refused if the broker does not store it."""
        queue_id = self._priority_of(message)
        properties = {KEYS: message.message_id, **properties}
        answer = self.link.send(topic, queue_id, message.encode(), properties)
        if not isinstance(answer, SendResult):
            what = f"cannot enqueue a message of queue {message.queue_name}"
            raise Refused(self.link.address, answer, what, "")

    def _priority_of(self, message: "dramatiq.Message[Any]") -> int:
        given = message.options.get("broker_priority")
        if given is None and message.actor_name in self.actors:
            given = self.actors[message.actor_name].options.get("broker_priority")
        return min(max(int(given or 0), 0), self.queue_count - 1)

    def consume(
        self, queue_name: str, prefetch: int = 1, timeout: int = DEFAULT_TIMEOUT_MS
    ) -> "RmqConsumer":
        """Return an iterator of the messages of a queue."""
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        try:
            consumer = RmqConsumer(self, queue_name, prefetch, timeout / 1_000)
        except (OSError, PeerError) as error:
            raise ConnectionClosed(str(error)) from error
        self._consumers.append(consumer)
        return consumer

    def forget_delay(self, queue_name: str, message_id: str) -> None:
        """Record that a delayed message was delivered, or not sent."""
        self._delayed[queue_name].discard(message_id)

    def remove_consumer(self, consumer: "RmqConsumer") -> None:
        """Forget a consumer that was closed."""
        if consumer in self._consumers:
            self._consumers.remove(consumer)

    def flush(self, queue_name: str) -> None:
        """Skip the messages that wait in a queue."""
        topics = self._topics()
        topics.purge(
            self.ensure_topic(topics, queue_name), self.names.group(queue_name)
        )

    def flush_all(self) -> None:
        """Skip the messages that wait in all queues."""
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until the queue is empty and this process holds none of its messages.

        Delayed messages count if this broker has sent them, at most the latest 10,000.
        """
        end_s = None if timeout is None else time.monotonic() + timeout / 1_000
        topics = self._topics()
        topic = self.ensure_topic(topics, queue_name)
        group = self.names.group(queue_name)
        while True:
            if (
                not self._delayed[queue_name]
                and not topics.count_waiting(topic, group)
                and not self._holds_messages(queue_name)  # last: messages move to it
            ):
                return
            if end_s is not None and time.monotonic() >= end_s:
                raise QueueJoinTimeout(queue_name)
            time.sleep(JOIN_STEP_S)

    def _holds_messages(self, queue_name: str) -> bool:
        """Whether a consumer holds a message of a queue, or may receive one now."""
        consumers = [each for each in self._consumers if each.queue_name == queue_name]
        return any(each.holds_messages for each in consumers)


class RmqMessage(dramatiq.MessageProxy):
    """A message with the tag of its lease."""

    def __init__(self, message: "dramatiq.Message[Any]", tag: str) -> None:
        super().__init__(message)
        self.tag = tag


class RmqConsumer(dramatiq.Consumer):
    """The messages of one queue; one thread uses it."""

    def __init__(
        self, broker: RmqBroker, queue_name: str, prefetch: int, timeout_s: float
    ) -> None:
        self.queue_name = queue_name
        self._broker = broker
        self._timeout_s = timeout_s
        self._reader = QueueReader(
            broker.new_link(),
            broker.names,
            [queue_name],
            prefetch_count=prefetch,
            visibility_s=broker.visibility_s,
            queue_count=broker.queue_count,
        )

    @property
    def holds_messages(self) -> bool:
        """Whether there are messages here, or a POP may bring some."""
        return self._reader.holds_messages

    def __next__(self) -> RmqMessage | None:
        """Return the next message; None without one in time.

        A message that cannot be read becomes a dead letter.
        """
        try:
            found = self._reader.receive(self._timeout_s)
            if found is None:
                return None
            try:
                message: dramatiq.Message[Any] = dramatiq.Message.decode(
                    found.message.body
                )
            except DecodeError:
                self._reader.move_to_dead_letters(found.tag)
                return None
        except PeerError as error:
            raise ConnectionClosed(str(error)) from error
        self._broker.forget_delay(self.queue_name, message.message_id)
        return RmqMessage(message, found.tag)

    def ack(self, message: RmqMessage) -> None:
        """Acknowledge a message."""
        self._reader.ack(message.tag)

    def nack(self, message: RmqMessage) -> None:
        """Move a message to the dead letters."""
        self._reader.move_to_dead_letters(message.tag)

    def requeue(self, messages: Iterable[RmqMessage]) -> None:
        """Give messages back to the queue."""
        self._reader.give_back([each.tag for each in messages])

    def close(self) -> None:
        """Make undelivered messages visible again, and disconnect."""
        self._reader.close()
        self._broker.remove_consumer(self)
