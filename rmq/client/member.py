"""Member: one member of a consumer group, in a program without an event loop.

It sends heartbeats over the window's links, divides the queues among the members as
Java's clients do by default, reads and commits offsets, and leaves the group in order.
Known in Java as a part of `DefaultMQPushConsumer`.
"""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Final

from rmq.client.admin import AdminClient, AnswerRefused, Queue, request
from rmq.client.core.allocate import average
from rmq.client.link import Link
from rmq.client.subscription import Subscription
from rmq.client.window import Window
from rmq.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from rmq.protocol.codes import RequestCode, ResponseCode

HEARTBEAT_S: Final = 30.0
SHARE_S: Final = 20.0
"""Seconds between two looks at the members, as Java's clients do."""


class Member:
    """The links to all brokers that have one of the topics."""

    def __init__(
        self,
        admin: AdminClient,
        window: Window,
        group: str,
        subscriptions: Sequence[Subscription],
    ) -> None:
        self.group = group
        self._admin = admin
        self._window = window
        self._subscriptions = subscriptions
        self._links: dict[str, Link] = {}
        self._last_beat = self._last_share = float("-inf")
        self._client_id = ""

    def link(self, address: str) -> Link:
        """Return the link to a broker, on which the group is known."""
        if address not in self._links:
            link = Link(address, self._admin.timeout_s, self._admin.identity)
            self._links[address] = link
            self._client_id = (
                self._client_id or f"{link.local_host()}@{os.getpid()}#rmq"
            )
            self._beat(link)
        return self._links[address]

    def share(self, now: float, *, is_changed: bool) -> list[tuple[str, Queue]] | None:
        """Return the topics and queues that are ours; None if it is too early to ask.

        Sends the heartbeats that are due.
        """
        if now - self._last_beat >= HEARTBEAT_S:
            self._last_beat = now
            for link in self._links.values():
                self._beat(link)
        if not is_changed and now - self._last_share < SHARE_S:
            return None
        self._last_share = now
        return [
            (each.topic, queue)
            for each in self._subscriptions
            for queue in self._share_of(each.topic)
        ]

    def _share_of(self, topic: str) -> Sequence[Queue]:
        try:
            queues = sorted(self._admin.queues(topic))
        except AnswerRefused as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST and topic.startswith("%"):
                return ()  # a retry topic, which exists after the first failure
            raise
        members: set[str] = set()
        for address in {queue.address for queue in queues}:
            self.link(address)
            self._settle()
            fields = {"consumerGroup": self.group}
            code = RequestCode.GET_CONSUMER_LIST_BY_GROUP
            found = self._admin.value(address, code, fields)
            members.update(found.get("consumerIdList") or ())
        return average(self._client_id, sorted(members), queues)

    def _settle(self) -> None:
        """Wait until brokers have answered heartbeats that are under way."""
        deadline = time.monotonic() + self._admin.timeout_s
        while HEARTBEAT in self._window.notes() and time.monotonic() < deadline:
            self._window.gather(0.1)

    def _beat(self, link: Link) -> None:
        data = HeartbeatData(
            client_id=self._client_id,
            consumer_data_set=[
                ConsumerData(
                    group_name=self.group,
                    consume_type=ConsumeType.CONSUME_PASSIVELY,
                    message_model=MessageModel.CLUSTERING,
                    consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
                    subscription_data_set=[each.data() for each in self._subscriptions],
                )
            ],
        )
        self._window.send(
            link, request(RequestCode.HEART_BEAT, {}, data.encode()), HEARTBEAT
        )

    def committed(self, topic: str, queue: Queue) -> int | None:
        """Return the offset where the group continues; None for a new group."""
        where = {"consumerGroup": self.group, "topic": topic, "queueId": queue.queue_id}
        code = RequestCode.QUERY_CONSUMER_OFFSET
        answer = self._admin.answer(queue.address, code, where)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise AnswerRefused(queue.address, answer.code, answer.remark or "")
        return int(answer.ext_fields["offset"])

    def commit(self, topic: str, offsets: Mapping[Queue, int]) -> None:
        """Store where the group continues; AnswerRefused if a broker does not."""
        for queue, offset in offsets.items():
            fields = {
                "consumerGroup": self.group, "topic": topic, "queueId": queue.queue_id,
                "commitOffset": offset,
            }  # fmt: skip
            self._admin.ask(queue.address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

    def leave(self) -> None:
        """Say goodbye to every broker, so that others get the queues at once."""
        fields = {"clientID": self._client_id, "consumerGroup": self.group}
        for link in self._links.values():
            link.ask(request(RequestCode.UNREGISTER_CLIENT, fields))
        self.close()

    def close(self) -> None:
        """End the connections without leaving the group."""
        for link in self._links.values():
            link.close()
        self._links.clear()


HEARTBEAT: Final = "heartbeat"
