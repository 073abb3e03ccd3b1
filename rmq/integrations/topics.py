"""Topics: the topics of a broker as task queues see them.

A topic that is known to exist is looked up again after a minute. A queue of one
process, such as the replies of a caller, has no topic: the name server is asked again
after a pause.
"""

import re
import time
from typing import Final

from rmq.client.core.routes import MAX_QUEUES
from rmq.integrations.task_link import Refused, TaskLink
from rmq.protocol.bodies.groups import ConsumeStats
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PERM_READ_WRITE
from rmq.protocol.headers.admin import (
    CreateTopicRequestHeader,
    GetConsumeStatsRequestHeader,
)
from rmq.protocol.headers.offsets import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rmq.protocol.headers.pop import NotificationRequestHeader
from rmq.protocol.topics import DEFAULT_TOPIC, pop_retry_topic

KNOWN_S: Final = 60.0
ABSENT_S: Final = 0.5
ABSENT_REPLIES_S: Final = 30.0
"""For queues with the name of a UUID, to which results of calls are sent."""

MAX_KNOWN: Final = 10_000
"""Maximum number of topics that are remembered; each caller of tasks has a queue."""

PRIORITY_TYPE: Final = "+message.type=PRIORITY"
END: Final = -1
"""The time in a reset that means the end of the queue."""

_UUID: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")
_NOT_THERE: Final = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)


class Topics:
    """The topics of one broker; `may_create` is `create_topics`."""

    def __init__(self, link: TaskLink, *, may_create: bool) -> None:
        self._link = link
        self._may_create = may_create
        self._known: dict[str, tuple[int | None, float]] = {}

    def queue_count(self, topic: str) -> int | None:
        """Return the number of queues of a topic; None if there is no such topic."""
        known = self._known.get(topic)
        now_s = time.monotonic()
        if known is not None and now_s < known[1]:
            return known[0]
        count = self._link.queue_count(topic)
        if count is not None:
            pause_s = KNOWN_S
        else:
            pause_s = ABSENT_REPLIES_S if _UUID.search(topic) else ABSENT_S
        self._keep_count(topic, count, now_s + pause_s)
        return count

    def _keep_count(self, topic: str, count: int | None, until_s: float) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[topic] = count, until_s

    def discard(self, topic: str) -> None:
        """Look a topic up again at its next use."""
        self._known.pop(topic, None)

    def ensure(self, topic: str, queues: int = 1) -> None:
        """Create a topic, or add queues to it; Refused with the remedy."""
        found = self.queue_count(topic)
        if found is not None and found >= queues:
            return
        is_prioritized = queues > 1
        if not self._may_create:
            raise ValueError(
                f"the topic {topic} has {found or 'no'} queues, needed are {queues}, "
                f"and create_topics is False: rmq admin updateTopic -t {topic} -r "
                f"{queues} -w {queues}"
                + (f" -a {PRIORITY_TYPE}" if is_prioritized else "")
            )
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=DEFAULT_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=PERM_READ_WRITE,
            topic_filter_type="SINGLE_TAG",
            attributes=PRIORITY_TYPE if is_prioritized else None,
        )
        self._request(
            Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header),
            f"cannot create the topic {topic}",
            "with create_topics=False an operator creates topics",
        )
        self._keep_count(topic, queues, time.monotonic() + KNOWN_S)

    # -- offsets

    def end_of(self, topic: str, queue_id: int = 0) -> int:
        """Return the end of a queue of a topic."""
        header = GetMaxOffsetRequestHeader(topic=topic, queue_id=queue_id)
        answer = self._request(
            Command.request(RequestCode.GET_MAX_OFFSET, header),
            f"cannot find the end of {topic}",
        )
        return answer.header(GetMaxOffsetResponseHeader).offset

    def begin_at_end(self, topic: str, group: str) -> None:
        """Let a group that is new to a topic with one queue begin at its end."""
        query = QueryConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=0, set_zero_if_not_found=False
        )
        answer = self._link.request(
            Command.request(RequestCode.QUERY_CONSUMER_OFFSET, query)
        )
        if answer.code != ResponseCode.SUCCESS:
            self._move(topic, group, 0, self.end_of(topic))

    def _move(self, topic: str, group: str, queue_id: int, offset: int) -> None:
        """Set the offset of a group; before this, a notification request creates the
        group.
        """
        notification = NotificationRequestHeader(
            consumer_group=group, topic=topic, queue_id=-1, poll_time=0, born_time=0
        )
        self._request(
            Command.request(RequestCode.NOTIFICATION, notification),
            f"cannot create the group {group}",
            "an operator creates groups, or autoCreateSubscriptionGroup=true",
        )
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic, queue_id=queue_id, commit_offset=offset
        )
        self._request(
            Command.request(RequestCode.UPDATE_CONSUMER_OFFSET, header),
            f"cannot set the offset of group {group} in {topic}",
        )

    def count_waiting(self, topic: str, group: str) -> int:
        """Return the number of messages of a topic that wait for a group, also for a
        retry.
        """
        return sum(
            self._lag(each, group) for each in (topic, pop_retry_topic(topic, group))
        )

    def _lag(self, topic: str, group: str) -> int:
        header = GetConsumeStatsRequestHeader(consumer_group=group, topic=topic)
        answer = self._request(
            Command.request(RequestCode.GET_CONSUME_STATS, header),
            f"cannot count the messages of {topic}",
            allowed=_NOT_THERE,
        )
        if answer.code != ResponseCode.SUCCESS:
            return 0
        table = ConsumeStats.decode(answer.body).offset_table
        return sum(
            max(0, each.broker_offset - max(each.consumer_offset, each.pull_offset))
            for each in table.values()
        )

    def purge(self, topic: str, group: str) -> int:
        """Skip the messages that wait for a group; return their number.

        Messages in workers and in the timer stay.
        """
        count = self.count_waiting(topic, group)
        for each in (topic, pop_retry_topic(topic, group)):
            header = ResetOffsetRequestHeader(
                group=group, topic=each, timestamp=END, is_force=True
            )
            answer = self._request(
                Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header),
                f"cannot purge {each}",
                "the user needs the right Update on topic and group",
                allowed=_NOT_THERE,
            )
            if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                queues = min(self.queue_count(each) or 0, MAX_QUEUES)
                for queue_id in range(queues):
                    self._move(each, group, queue_id, self.end_of(each, queue_id))
        return count

    def _request(
        self,
        command: Command,
        what: str,
        hint: str = "",
        *,
        allowed: tuple[ResponseCode, ...] = (),
    ) -> Command:
        """Return the answer to a request; Refused unless its code is allowed."""
        answer = self._link.request(command)
        if answer.code != ResponseCode.SUCCESS and answer.code not in allowed:
            raise Refused(self._link.address, answer, what, hint)
        return answer
