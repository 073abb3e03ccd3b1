"""taskiq on rmq: `broker = RmqBroker("127.0.0.1:9876")`.

A queue is a topic and a group of its name. Workers pop it, and extend the lease of a
message until its task has ended. The label `delay`, in seconds, lets a message wait in
the timer of the broker. The label `priority` chooses the queue of the topic, larger
first. With `broadcast=True` each worker gets each task that is sent after the start of
the worker.
"""

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import anyio.to_thread
from taskiq import (
    AckableMessage,
    AsyncBroker,
    BrokerMessage,
    ScheduledTask,
    ScheduleSource,
)
from taskiq.kicker import AsyncKicker

from rmq.client import Client, Consumer, Message, Producer
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import SendRefused
from rmq.integrations.names import Names, escape
from rmq.integrations.recalls import keep_handle, recall_handle
from rmq.integrations.task_link import TaskLink
from rmq.integrations.topics import Topics
from rmq.outgoing.identity import ANONYMOUS, Identity
from rmq.outgoing.signing import Credentials
from rmq.protocol.codes import ResponseCode

MAX_POP: Final = 32
"""Maximum number of messages of one POP."""


class NoOffsets:
    """Stores no offsets: a worker of a broadcast begins with the messages after its own
    start.
    """

    def load(self) -> Mapping[MessageQueue, int]:
        """Return no offsets."""
        return {}

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Do nothing."""


class RmqBroker(AsyncBroker):
    """A broker of taskiq.

    Args:
        name_server (str): `host:port`; several are separated by `;`.
        queue (str): the queue of this broker's tasks.
        identity (Identity): user and TLS.
        namespace (str): begins all names, as a virtual host.
        visibility_s (float): seconds until another worker gets the messages of a dead
            worker.
        max_priority (int): the largest `priority`; the topic has one queue for each of
            0 to `max_priority`.
        max_deliveries (int): deliveries of a message before it is a dead letter.
        prefetch (int): the limit of messages that a worker holds.
        broadcast (bool): each worker gets each task.
    """

    def __init__(  # noqa: PLR0913 - options, all but one by name
        self,
        name_server: str = "127.0.0.1:9876",
        *,
        queue: str = "taskiq",
        identity: Identity = ANONYMOUS,
        namespace: str = "",
        visibility_s: float = 60.0,
        max_priority: int = 0,
        max_deliveries: int = 16,
        prefetch: int = 100,
        broadcast: bool = False,
    ) -> None:
        super().__init__()
        self.topic = escape(queue)
        self._names = Names(namespace)
        self._queue = queue
        self._servers = [each.strip() for each in name_server.split(";")]
        self._identity = identity
        self._visibility_s = visibility_s
        self._max_priority = max_priority
        self._max_deliveries = max_deliveries
        self._prefetch = prefetch
        self._is_broadcast = broadcast
        self._master = ""
        self._client: Client | None = None
        self._producer: Producer | None = None
        self._consumer: Consumer | None = None

    # -- life

    async def startup(self) -> None:
        """Connect; create the topic if there is none."""
        await super().startup()
        self._master = await anyio.to_thread.run_sync(self._ensure_topic)
        user, password, trust = self._identity
        self._client = await Client(
            self._servers,
            tls=trust,
            credentials=Credentials(user, password) if user else None,
            namespace=self._names.namespace,
        ).start()
        self._producer = await Producer(self._client).start()

    def _ensure_topic(self) -> str:
        """Create the topic; return the broker that has its queues."""
        link = TaskLink(self._servers, self._identity)
        try:
            link.connect()
            topic = self._names.topic(self._queue)
            Topics(link, may_create=True).ensure(topic, self._max_priority + 1)
            return link.broker
        finally:
            link.close()

    async def shutdown(self) -> None:
        """Make messages without a task visible again, and disconnect."""
        for each in (self._consumer, self._producer, self._client):
            if each is not None:
                await each.aclose()
        self._client = self._producer = self._consumer = None
        await super().shutdown()

    # -- messages

    async def kick(self, message: BrokerMessage) -> None:
        """Store a task; with the label `delay` it waits in the broker."""
        assert self._producer is not None, "await broker.startup() first"
        task_id, labels = message.task_id, message.labels
        keys = [task_id] if task_id.split() == [task_id] else []
        delay_s = float(labels.get("delay") or 0)
        found = await self._producer.send(
            Message(self.topic, message.message, keys=keys),
            queue=self._queue_of(labels.get("priority")),
            delay=timedelta(seconds=delay_s) if delay_s > 0 else None,
        )
        if found.recall_handle:
            keep_handle(task_id, found.recall_handle)

    def _queue_of(self, priority: Any) -> MessageQueue | None:  # noqa: ANN401 - a label
        if not self._max_priority:
            return None
        queue_id = min(max(int(priority or 0), 0), self._max_priority)
        return MessageQueue(self.topic, self._master, queue_id)

    async def recall(self, task_id: str) -> bool:
        """Take a delayed task of this process out of the timer; False if the task has
        left it.

        ValueError without its handle: the task has no delay, or the broker allows no
        recalls.
        """
        assert self._producer is not None, "await broker.startup() first"
        handle = recall_handle(task_id)
        if handle is None:
            raise ValueError(
                f"the task {task_id} has no handle here: it has no delay, another "
                "process has sent it, or the broker allows no recalls "
                "(recallMessageEnable=true)"
            )
        try:
            await self._producer.recall(self.topic, handle)
        except SendRefused as error:
            if error.code == ResponseCode.ILLEGAL_OPERATION:
                return False
            raise
        return True

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Yield the messages of the queue; taskiq acknowledges them.

        The consumer stays open until `shutdown`: tasks end after the last message.
        """
        if self._consumer is None:
            self._consumer = await self._open_consumer()
        async for message in self._consumer.deliveries():
            if message.reconsume_times >= self._max_deliveries > 0:
                await message.nack(dead_letter=True)
                continue
            yield AckableMessage(data=message.body, ack=message.ack)

    async def _open_consumer(self) -> Consumer:
        assert self._client is not None, "await broker.startup() first"
        is_broadcast = self._is_broadcast
        return await Consumer(
            self._client,
            self.topic,
            self.topic,
            broadcast=is_broadcast,
            start="last" if is_broadcast else "first",
            mode="auto" if is_broadcast else "pop",
            invisible_s=self._visibility_s,
            fetch_messages=min(self._prefetch, MAX_POP),
            buffer_messages=self._prefetch,
            offsets=NoOffsets() if is_broadcast else None,
        ).start()


class RmqScheduleSource(ScheduleSource):
    """Schedules with a time, which wait in the timer of the broker and need no
    scheduler process. Schedules with `cron` or `interval` belong to another source.
    """

    def __init__(self, broker: RmqBroker) -> None:
        self._broker = broker

    async def get_schedules(self) -> list[ScheduledTask]:
        """Return no schedules: the broker itself delivers them."""
        return []

    async def add_schedule(self, schedule: ScheduledTask) -> None:
        """Store a task that is delivered at its time."""
        if schedule.time is None:
            raise ValueError(
                "rmq keeps schedules with a time; cron and interval need the scheduler"
            )
        moment = schedule.time
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        delay_s = max(0.0, (moment - datetime.now(UTC)).total_seconds())
        labels = {**schedule.labels, "delay": delay_s}
        kicker: AsyncKicker[Any, Any] = AsyncKicker(
            schedule.task_name, self._broker, labels
        )
        await kicker.with_task_id(schedule.schedule_id).kiq(
            *schedule.args, **schedule.kwargs
        )

    async def delete_schedule(self, schedule_id: str) -> None:
        """Take a task out of the timer."""
        await self._broker.recall(schedule_id)
