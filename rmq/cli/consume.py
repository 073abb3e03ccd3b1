"""`rmq consume`: look at the messages of a topic, or take part in a consumer group."""

import base64
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import click

from rmq.cli.failures import Subject, end
from rmq.cli.text import clock, fitted, harmless, harmless_body, iso, time_ms
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient, AnswerRefused, Queue, pull_fields, request
from rmq.client.member import Member, Subscription
from rmq.client.window import Arrival, Window
from rmq.errors import RmqError
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import StoredMessage, decode_stored, plain_body
from rmq.protocol.topics import is_retry_topic, retry_topic

NEWEST: Final = 10
COMMIT_S: Final = 5.0
HOLD_MS: Final = 15_000
"""How long a broker may hold a pull, as for Java's clients."""

NOTHING_THERE: Final = (
    ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)  # fmt: skip
_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}

Write = Callable[[StoredMessage], None]


class Choice(NamedTuple):
    """What is read: where it begins, and when it ends."""

    group: str | None
    begin: str | None
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

    @property
    def is_done(self) -> bool:
        """Whether all is read that is wanted."""
        return not self.is_ours or (self.end is not None and self.offset >= self.end)


class Reader:
    """Follows queues over one window; `records` yields messages as they arrive."""

    def __init__(
        self,
        admin: AdminClient,
        window: Window,
        subscription: Subscription,
        choice: Choice,
    ) -> None:
        self._admin = admin
        self._window = window
        self._choice = choice
        self._wanted = {subscription.topic: subscription}
        self.positions: dict[tuple[str, Queue], Position] = {}
        self.member: Member | None = None
        self._last_commit = time.monotonic()
        if choice.group:
            retry = retry_topic(choice.group)
            self._wanted[retry] = Subscription(retry)
            wanted = list(self._wanted.values())
            self.member = Member(admin, window, choice.group, wanted)

    def records(self) -> Iterator[tuple[Position, StoredMessage]]:
        """Yield messages until all wanted ones are read, or for ever."""
        topic = next(iter(self._wanted))
        if self.member is None:
            yield from self._begin(topic)
        is_changed = True
        while True:
            if self.member is not None:
                self._share(self.member, is_changed=is_changed)
                is_changed = False
                if time.monotonic() - self._last_commit > COMMIT_S:
                    self.commit(self.member)
            open_queues = set(self._window.notes())
            for each in self.positions.values():
                if not each.is_done and each not in open_queues:
                    self._pull(each)
            if self._choice.stops_at_end and all(
                each.is_done for each in self.positions.values()
            ):
                return
            for arrival in self._window.arrivals(1.0):
                if isinstance(arrival.note, Position):
                    yield from self._taken(arrival, arrival.note)
                elif arrival.note is None:
                    notified = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
                    is_changed |= arrival.command.code == notified
                elif arrival.command.code != ResponseCode.SUCCESS:
                    raise _refusal(arrival)

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
        choice = self._choice
        end = None
        high = self._admin.offset(RequestCode.GET_MAX_OFFSET, topic, queue)
        if choice.stops_at_end:
            end = high
        if choice.offset is not None:
            return Position(topic, queue, choice.offset, end)
        if choice.begin is None or choice.begin == "last":
            return Position(topic, queue, high, end)
        if choice.begin == "first":
            low = self._admin.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
            return Position(topic, queue, low, end)
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        at = time_ms(choice.begin)
        found = self._admin.offset(code, topic, queue, timestamp=at)
        return Position(topic, queue, found, end)

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
        """Continue where the group stopped; a new group begins at the first message."""
        position = self._position(topic, queue)
        committed = member.committed(topic, queue)
        if committed is not None:
            position.offset = committed
        elif self._choice.begin is None:
            code = RequestCode.GET_MIN_OFFSET
            position.offset = self._admin.offset(code, topic, queue)
        position.written = position.stored = position.offset
        return position

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
        elif answer.code not in NOTHING_THERE:
            raise _refusal(arrival)
        following = int(answer.ext_fields.get("nextBeginOffset", position.offset))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            position.offset = following
        position.offset = max(position.offset, following)


def _refusal(arrival: Arrival) -> AnswerRefused:
    answer = arrival.command
    return AnswerRefused(arrival.link.address, answer.code, answer.remark or "")


# -- output


def _writer(form: str | None, *, as_json: bool, is_raw: bool) -> Write:
    """Return the function that writes one message to stdout."""
    if as_json:
        return lambda record: click.echo(
            json.dumps(as_object(record), ensure_ascii=False)
        )
    if form is not None:
        return lambda record: _write_form(form, record, is_raw=is_raw)
    if is_raw:
        return _write_raw
    if sys.stdout.isatty():
        return lambda record: click.echo(fitted(_line(record)))
    return lambda record: click.echo("\t".join(_columns(record)))


def _write_raw(record: StoredMessage) -> None:
    sys.stdout.buffer.write(plain_body(record) + b"\n")
    sys.stdout.buffer.flush()


def _write_form(form: str, record: StoredMessage, *, is_raw: bool) -> None:
    text = _FIELD.sub(lambda match: _value(match, record, is_raw=is_raw), form)
    click.echo(text.encode("utf-8", "surrogateescape") if is_raw else text, nl=False)


def _value(match: re.Match[str], record: StoredMessage, *, is_raw: bool) -> str:
    letter, escape = match.groups()
    if escape:
        return _ESCAPES[escape]
    properties = record.properties
    if letter == "v":
        body = plain_body(record)
        return (
            body.decode("utf-8", "surrogateescape") if is_raw else harmless_body(body)
        )
    if letter == "p":
        return json.dumps(dict(properties))
    texts = {
        "t": record.topic, "q": str(record.queue_id), "o": str(record.queue_offset),
        "k": properties.get("KEYS", ""), "g": properties.get("TAGS", ""),
        "i": _id(record), "d": iso(record.store_timestamp),
        "s": str(len(record.body)), "%": "%",
    }  # fmt: skip
    return harmless(texts.get(letter, match[0]))


def _id(record: StoredMessage) -> str:
    return record.properties.get("UNIQ_KEY", record.offset_msg_id)


def _line(record: StoredMessage) -> str:
    properties = record.properties
    parts = [
        clock(record.store_timestamp),
        f"{record.queue_id}:{record.queue_offset}",
        harmless(properties.get("KEYS", "")),
        harmless(properties.get("TAGS", "")),
        harmless_body(plain_body(record)),
    ]
    return "  ".join(part for part in parts if part)


def _columns(record: StoredMessage) -> list[str]:
    properties = record.properties
    return [
        iso(record.store_timestamp), str(record.queue_id), str(record.queue_offset),
        harmless(properties.get("KEYS", "")), harmless(properties.get("TAGS", "")),
        harmless_body(plain_body(record)),
    ]  # fmt: skip


def as_object(record: StoredMessage) -> dict[str, object]:
    """Return a message for JSON; a body that is no UTF-8 is in `bodyBase64`."""
    body = plain_body(record)
    found: dict[str, object] = {
        "topic": record.topic, "queueId": record.queue_id,
        "queueOffset": record.queue_offset, "msgId": _id(record),
        "keys": record.properties.get("KEYS"), "tags": record.properties.get("TAGS"),
        "storeTime": iso(record.store_timestamp),
        "properties": dict(record.properties),
    }  # fmt: skip
    try:
        found["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    return found


# -- the command


@click.command()
@click.argument("topic")
@click.option("-g", "--group", help="Take part in a consumer group, and commit.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many.")
@click.option("-e", "--end", "stops_at_end", is_flag=True, help="Stop at the end.")
@click.option(
    "--from", "begin", metavar="TIME",
    help="first, last, or a time: 10m (ago), 2026-11-21T03:01:54, milliseconds.",
)  # fmt: skip
@click.option(
    "-o", "--offset", type=click.IntRange(0), help="From this offset; with -q."
)
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue."
)
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with these tags.")
@click.option("--sql", metavar="EXPRESSION", help="Only messages that match, SQL92.")
@click.option(
    "-f", "--format", "form", metavar="FORMAT",
    help="%t topic, %q queue, %o offset, %k key, %g tag, %i id, %d time, %s size, "
    "%v body, %p properties as JSON, %%; \\n, \\t.",
)  # fmt: skip
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="One JSON object a message."
)
@click.option("--raw", "is_raw", is_flag=True, help="Bodies as they are, into a pipe.")
@with_settings
def consume(  # noqa: PLR0913 - one parameter for each option
    settings: ToolSettings,
    topic: str,
    group: str | None,
    count: int | None,
    begin: str | None,
    offset: int | None,
    queue_id: int | None,
    tags: str | None,
    sql: str | None,
    form: str | None,
    *,
    stops_at_end: bool,
    as_json: bool,
    is_raw: bool,
) -> None:
    """Show the newest messages of a topic, then those that come. Ctrl-C ends it.

    Without a group nothing is committed, and no consumer notices.

    \b
    rmq consume Hello                       the newest 10, then what comes
    rmq consume Hello --from first -e       all that there is
    rmq consume Hello -g billing -c 2 -f '%q:%o %k %v\\n'
    """  # noqa: D301 - click wants the character itself
    _check(group, begin, queue_id, offset, tags, sql, is_raw=is_raw)
    wanted = Subscription(topic, sql or tags or "*", "SQL92" if sql else "TAG")
    choice = Choice(group, begin, queue_id, offset, stops_at_end)
    write = _writer(form, as_json=as_json, is_raw=is_raw)
    with settings.admin() as admin, Window() as window:
        try:
            reader = Reader(admin, window, wanted, choice)
            _follow(reader, write, count)
        except RmqError as error:
            end(error, admin, Subject(topic, group or "", action="Sub"))


def _check(
    group: str | None,
    begin: str | None,
    queue_id: int | None,
    offset: int | None,
    tags: str | None,
    sql: str | None,
    *,
    is_raw: bool,
) -> None:
    if offset is not None and queue_id is None:
        raise click.UsageError("-o needs -q: each queue has offsets of its own")
    if group and (queue_id is not None or offset is not None):
        raise click.UsageError("a group divides the queues itself: leave out -q and -o")
    if tags and sql:
        raise click.UsageError("give --tags or --sql, not both")
    if is_raw and sys.stdout.isatty():
        raise click.UsageError(
            "--raw is for pipes and files: bodies may drive a terminal"
        )
    if begin not in (None, "first", "last"):
        time_ms(str(begin))


def _follow(reader: Reader, write: Write, count: int | None) -> None:
    """Write messages until the count, the end or Ctrl-C; then commit and leave."""
    done = 0
    try:
        for position, record in reader.records():
            write(record)
            position.written = record.queue_offset + 1
            done += 1
            if done == count:
                return
    except KeyboardInterrupt:
        pass
    finally:
        if reader.member is not None:
            _leave(reader, reader.member)


def _leave(reader: Reader, member: Member) -> None:
    """Commit what was written; what was only received comes to other members."""
    reader.commit(member)
    member.leave()
    texts = [
        f"queue {each.queue.queue_id} up to {each.written}"
        for each in reader.positions.values()
        if not is_retry_topic(each.topic)
    ]
    click.echo(f"committed {', '.join(texts) or 'nothing'}", err=True)
