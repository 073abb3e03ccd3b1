"""Reader: messages of a topic as they come, in a program without an event loop.

It looks at a topic, or takes part in a consumer group. While it follows, a broker that
stops costs nothing but time: the reader connects again and continues where it was.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rmq.client.admin import AdminClient, AnswerRefused, Queue, pull_fields, request
from rmq.client.member import Member
from rmq.client.subscription import Subscription
from rmq.client.subscription import subscription as subscription_to
from rmq.client.window import Arrival, Window
from rmq.errors import PeerError, RmqError
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import StoredMessage, decode_stored
from rmq.protocol.topics import retry_topic

NEWEST: Final = 10
COMMIT_S: Final = 5.0
HOLD_MS: Final = 15_000
"""How long a broker may hold a pull, as for Java's clients."""

AGAIN_S: Final = 1.0
"""Pause before a broker that is away or busy is asked again."""

NOTHING_THERE: Final = (
    ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)  # fmt: skip


class Choice(NamedTuple):
    """What is read: where it begins, and when it ends."""

    group: str | None
    begin: str | int | None
    """`first`, `last` or a time in milliseconds; None for the newest."""

    queue_id: int | None
    offset: int | None
    stops_at_end: bool


class Position:
    """A queue and how far it is read; a pull at most is open."""

    def __init__(self, topic: str, queue: Queue, offset: int, end: int | None) -> None:
        self.topic = topic
        self.queue = queue
        self.offset = offset
        self.end = end
        self.written = self.stored = offset
        self.is_ours = True
        self.rests_until = 0.0

    @property
    def is_done(self) -> bool:
        """Whether all is read that is wanted."""
        return not self.is_ours or (self.end is not None and self.offset >= self.end)


class Reader:
    """Follows queues over one window; `records` yields messages as they arrive.

    `notify` gets a sentence when a broker goes away, and when it is back.
    """

    def __init__(
        self,
        admin: AdminClient,
        window: Window,
        subscription: Subscription,
        choice: Choice,
        notify: Callable[[str], None],
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._notify = notify
        self._sleep = sleep
        self._admin = admin
        self._window = window
        self._choice = choice
        self._wanted = {subscription.topic: subscription}
        self.positions: dict[tuple[str, Queue], Position] = {}
        self.member: Member | None = None
        self._last_commit = time.monotonic()
        if choice.group:
            retry = retry_topic(choice.group)
            self._wanted[retry] = subscription_to(retry)
            wanted = list(self._wanted.values())
            self.member = Member(admin, window, choice.group, wanted)

    def records(self) -> Iterator[tuple[Position, StoredMessage]]:
        """Yield messages until all wanted ones are read, or for ever."""
        if self.member is None:
            yield from self._begin(next(iter(self._wanted)))
        else:
            self._share(self.member, is_changed=True)
        is_changed = False
        while not self._is_done:
            try:
                self._ask_for_more(is_changed=is_changed)
                arrivals = self._window.arrivals(1.0)
            except PeerError as error:
                if self._choice.stops_at_end:
                    raise
                self._wait_for_return(error)
                is_changed = True
                continue
            is_changed = False
            for arrival in arrivals:
                if isinstance(arrival.note, Position):
                    yield from self._taken(arrival, arrival.note)
                elif arrival.note is None:
                    notified = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                    is_changed |= arrival.command.code == notified
                elif arrival.command.code != ResponseCode.SUCCESS:
                    raise _refusal(arrival)

    @property
    def _is_done(self) -> bool:
        return self._choice.stops_at_end and all(
            each.is_done for each in self.positions.values()
        )

    def _ask_for_more(self, *, is_changed: bool) -> None:
        """Do what a member does from time to time; pull every queue once."""
        if self.member is not None:
            self._share(self.member, is_changed=is_changed)
            if time.monotonic() - self._last_commit > COMMIT_S:
                self.commit(self.member)
        open_queues = set(self._window.notes())
        for each in self.positions.values():
            rests = each.rests_until > time.monotonic()
            if not (each.is_done or rests or each in open_queues):
                self._pull(each)

    def _wait_for_return(self, error: PeerError) -> None:
        """Connect again until the topic has a route and its brokers answer."""
        self._notify(f"{error}; waits until it is back")
        while True:
            self._window.forget()
            self._admin.close()
            if self.member is not None:
                self.member.close()
            self._sleep(AGAIN_S)
            try:
                self._look_again()
            except (PeerError, AnswerRefused):
                continue
            self._notify("connected again")
            return

    def _look_again(self) -> None:
        """Find the queues by their brokers' names: addresses may have changed."""
        found = {
            (topic, queue.broker, queue.queue_id): queue
            for topic in {each.topic for each in self.positions.values()}
            for queue in self._admin.queues(topic)
        }
        for each in self.positions.values():
            name = each.topic, each.queue.broker, each.queue.queue_id
            each.queue = found.get(name, each.queue)
            self._admin.link(each.queue.address)
        self.positions = {
            (each.topic, each.queue): each for each in self.positions.values()
        }

    def _begin(self, topic: str) -> Iterator[tuple[Position, StoredMessage]]:
        """Look up where to begin; without a place yield the newest messages first."""
        queues = [
            queue
            for queue in self._admin.queues(topic)
            if self._choice.queue_id in (None, queue.queue_id)
        ]
        if not queues:
            raise RmqError(f"{topic} has no such queue that can be read")
        newest = []
        for queue in queues:
            position = self._position(topic, queue)
            self.positions[topic, queue] = position
            if self._choice.begin is None and self._choice.offset is None:
                stop = position.offset
                low = self._admin.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
                position.offset = max(low, stop - NEWEST)
                while position.offset < stop:
                    arrival = self._ask(position)
                    taken = list(self._taken(arrival, position))
                    newest += [each for each in taken if each[1].queue_offset < stop]
                    if not taken and arrival.command.code != ResponseCode.SUCCESS:
                        break
        newest.sort(key=lambda item: item[1].store_timestamp)
        yield from newest[-NEWEST:]

    def _position(self, topic: str, queue: Queue) -> Position:
        return Position(
            topic, queue, self._start(topic, queue), self._end(topic, queue)
        )

    def _end(self, topic: str, queue: Queue) -> int | None:
        return self._high(topic, queue) if self._choice.stops_at_end else None

    def _high(self, topic: str, queue: Queue) -> int:
        return self._admin.offset(RequestCode.GET_MAX_OFFSET, topic, queue)

    def _start(self, topic: str, queue: Queue) -> int:
        """Return where the choice begins; without a group that is the end at first."""
        choice = self._choice
        if choice.offset is not None:
            return choice.offset
        if choice.begin is None or choice.begin == "last":
            return self._high(topic, queue)
        if choice.begin == "first":
            return self._admin.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        return self._admin.offset(code, topic, queue, timestamp=choice.begin)

    def _share(self, member: Member, *, is_changed: bool) -> None:
        """Begin with queues that became ours, and give up those that are lost."""
        share = member.share(time.monotonic(), is_changed=is_changed)
        if share is None:
            return
        for key, position in list(self.positions.items()):
            if key not in share:
                self._commit_one(member, position)
                position.is_ours = False
                del self.positions[key]
        for topic, queue in share:
            if (topic, queue) not in self.positions:
                self.positions[topic, queue] = self._joined(member, topic, queue)

    def commit(self, member: Member) -> None:
        """Store how far each queue was written; the rest comes to other members."""
        self._last_commit = time.monotonic()
        for position in self.positions.values():
            self._commit_one(member, position)

    def _commit_one(self, member: Member, position: Position) -> None:
        if position.stored != position.written:
            member.commit(position.topic, {position.queue: position.written})
            position.stored = position.written

    def _joined(self, member: Member, topic: str, queue: Queue) -> Position:
        """Continue where the group stopped; a new group begins at the first message.

        That is asked for as offset 0, and the broker's answer moves it: a user who may
        read a topic (Sub) need not have the right to ask for its offsets (Get).
        """
        offset = member.committed(topic, queue)
        if offset is None:
            is_new = self._choice.begin is None
            offset = 0 if is_new else self._start(topic, queue)
        return Position(topic, queue, offset, self._end(topic, queue))

    def _request(
        self, position: Position, wait_ms: int
    ) -> tuple[RequestCode, dict[str, object]]:
        wanted = self._wanted[position.topic]
        fields = pull_fields(
            position.topic, position.queue, position.offset, wait_ms=wait_ms,
            expression=wanted.expression, kind=wanted.kind,
            group=self._choice.group or "rmq-consume",
        )  # fmt: skip
        return RequestCode.PULL_MESSAGE, fields

    def _ask(self, position: Position) -> Arrival:
        code, fields = self._request(position, 0)
        link = self._admin.link(position.queue.address)
        return Arrival(link, link.ask(request(code, fields)), position, 0.0)

    def _pull(self, position: Position) -> None:
        address = position.queue.address
        link = self.member.link(address) if self.member else self._admin.link(address)
        wait_ms = 0 if position.end is not None else HOLD_MS
        self._window.send(link, request(*self._request(position, wait_ms)), position)

    def _taken(
        self, arrival: Arrival, position: Position
    ) -> Iterator[tuple[Position, StoredMessage]]:
        """Yield the messages of a pull; the position follows them one by one."""
        answer = arrival.command
        if not position.is_ours:
            return
        if answer.code == ResponseCode.SUCCESS:
            for record in decode_stored(answer.body):
                if record.queue_offset >= position.offset:
                    position.offset = record.queue_offset + 1
                    yield position, record
        elif answer.code == ResponseCode.SYSTEM_BUSY:  # also of a broker that stops
            position.rests_until = time.monotonic() + AGAIN_S
            return
        elif answer.code not in NOTHING_THERE:
            raise _refusal(arrival)
        following = int(answer.ext_fields.get("nextBeginOffset", position.offset))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            position.offset = following
        position.offset = max(position.offset, following)


def _refusal(arrival: Arrival) -> AnswerRefused:
    answer = arrival.command
    return AnswerRefused(arrival.link.address, answer.code, answer.remark or "")
