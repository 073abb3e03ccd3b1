"""Recorded conversations of Java's servers with all clients, replayed against rmq.

Every request goes over the wire to a fresh node, byte by byte as it was recorded and in
the recorded order, and must bring the same response code, the same field names and a
body of the same shape.  What differs on purpose stands in INTENDED with its reason; the
codes that rmq does not serve yet stand in NOT_YET by name.  `pytest -s` prints the
report.

Pulls that Java held until they ran out are not held.  Places in
Java's log that a client learnt from an answer become the places in ours.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import trio

from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored
from rmq.store.message_store import MessageStore
from rmq.testing import running_node
from tests.golden.conversations import (
    SETTINGS,
    WITH_SQL,
    Connection,
    Link,
    Row,
    address_of,
    conversations,
    exchanges,
    may_be_held,
    not_held,
    prepare,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUTE = RequestCode.GET_ROUTEINFO_BY_TOPIC
ORDER_SETTINGS = "ORDER_TOPIC_CONFIG"
RELAYED = (
    RequestCode.SEND_REPLY_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
)
"""Requests that are answered when another client has answered."""


class Intended(NamedTuple):
    """A difference that is meant: where, of which code, how it looks, and why."""

    recording: str
    code: int
    text: str
    reason: str


NO_25 = (
    "rmq serves pulls with tags newer than the heartbeat unfiltered; Java answers 25"
)
ELSEWHERE = "the group and its messages are in another recording"
BEFORE = "the recorded message was stored before the recording"
RESET = "the tool that reset the offsets is in another recording"
WRONG_CLOCK = "a client whose clock is wrong gets messages, too"
STATIC_ELSEWHERE = "the topic was made static in another recording"
USERS_ELSEWHERE = "the user is in another recording"

INTENDED = [
    Intended(r".*", 11, "Java 25", NO_25),
    Intended(r"mqadmin.*", 307, "not online", ELSEWHERE),
    Intended(r"mqadmin.*", 309, "there is no message", BEFORE),
    Intended(r"mqadmin.*", 33, "can not find message", BEFORE),
    Intended(r"(mqadmin|probe-).*", 12, "can not find message", BEFORE),
    Intended(r"mqadmin.*-online-client", 11, "code 19 .* Java 21", RESET),
    Intended(r".*", 105, "topicQueueMappingByBroker", STATIC_ELSEWHERE),
    Intended(r"mqadmin55-.*[sS]tatic.*", 351, "mappingDetail", STATIC_ELSEWHERE),
    Intended(
        "probe-broker", 320, "code 13 .* Java 1",
        "a batch with wrong lengths is illegal (13), not an exception (1)",
    ),
    Intended("probe-broker", 200050, "code 0 .* Java 210", WRONG_CLOCK),
    Intended(r"mqadmin.*", 203, "not online.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 204, "not exist.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 222, "does not exist.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 307, "not online.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 309, "there is no message.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 315, "not exist.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 317, "consumeStatsList", ELSEWHERE),
    Intended(
        ".*",
        907,
        "'notFollowing': 'str'.*'refusals': ",
        "rmq also says why a slave does not follow, and whom a master refuses",
    ),
    Intended(r"mqadmin.*", 321, "is not exist!.*Java 0", ELSEWHERE),
    Intended(r"mqadmin.*", 401, "topic.* not exist.*Java 0", ELSEWHERE),
    Intended(
        r".*", 25, "cannot be changed",
        "rmq refuses the request and names the key; Java ignores the key",
    ),
    *(
        Intended(r"mqadmin55-.*", code, "not exist|body False", USERS_ELSEWHERE)
        for code in (3002, 3004, 3005, 3006, 3007, 3008, 3009, 3010)
    ),
    Intended(
        "probe-broker", 345, "subscriptionData",
        "rmq keeps no subscriptions of pulls for groups without members",
    ),
    Intended(
        "probe-broker", 223, "code 206 .* Java 1",
        "rmq answers 206 for a group that is offline; Java has a NullPointerException",
    ),
    Intended(
        "java.*", 105, "%RETRY%.* code 0 .* Java 17",
        "rmq shows a new topic in the routes sooner",
    ),
    Intended(
        "probe-namesrv", 318, "code 16 .* Java 0",
        "rmq names a key that does not exist; Java reports a success",
    ),
    Intended(
        "probe-namesrv", 322, "body False",
        "the recorded broker had registered with that name server before",
    ),
]  # fmt: skip

NOT_YET = {
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
    RequestCode.SWITCH_TIMER_ENGINE,
}


NOT_PUSHED = {
    RequestCode.CHECK_TRANSACTION_STATE: "Java checked half messages of half a minute",
    RequestCode.GET_CONSUMER_RUNNING_INFO: ELSEWHERE,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: ELSEWHERE,
}
"""What the broker does not ask clients here, and why."""


@dataclass
class Report:
    """What the replay found."""

    equal: int = 0
    not_yet: Counter[int] = field(default_factory=Counter)
    intended: Counter[Intended] = field(default_factory=Counter)
    not_pushed: Counter[int] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


def questions(rows: list[Row]) -> dict[int, int]:
    """The code of the broker's request that a client answers, by the answer's place."""
    asked: dict[tuple[Connection, int], int] = {}
    found = {}
    for place, row in enumerate(rows):
        key = (row.connection, row.command.opaque)
        if not row.is_from_client and not row.command.is_response:
            asked[key] = row.command.code
        elif row.is_from_client and row.command.is_response and key in asked:
            found[place] = asked.pop(key)
    return found


def key_values(request: Command, java: Command) -> dict[tuple[str, str], str]:
    """Settings at the name server that an answer tells about."""
    fields = request.ext_fields
    if request.code == RequestCode.REGISTER_BROKER and java.body:
        table = fastjson.load_json(java.body)["table"]
        return {(ORDER_SETTINGS, key): value for key, value in table.items()}
    if request.code == RequestCode.GET_KV_CONFIG and java.code == 0:
        return {(fields["namespace"], fields["key"]): java.ext_fields["value"]}
    return {}


async def put_key_values(link: Link, settings: dict[tuple[str, str], str]) -> None:
    for (namespace, key), value in settings.items():
        fields = {"namespace": namespace, "key": key, "value": value}
        await link.send(Command(RequestCode.PUT_KV_CONFIG, fields, opaque=-2))
        await link.answer(-2)


# -- replay


class Places:
    """Where the records of Java's log lie in ours, as far as answers tell.

    Handles and times of messages become ours, too.
    """

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._queues: dict[int, tuple[str, int, int]] = {}
        self._handles: dict[str, str] = {}
        self._pops: dict[str, list[str]] = {}
        """Time, invisible time and revive queue of our POPs, by the time of Java's."""

    def learn(self, java: Command, ours: Command | None = None) -> None:
        """Keep topic, queue and offset of the messages in an answer."""
        if ours is not None and "popTime" in java.ext_fields:
            names = "popTime", "invisibleTime", "reviveQid"
            values = [ours.ext_fields.get(name, "") for name in names]
            self._pops[java.ext_fields["popTime"]] = values
        if ours is not None and HANDLE in java.ext_fields:
            handle = ours.ext_fields.get(HANDLE, "")
            self._handles[java.ext_fields[HANDLE]] = handle
        if java.remark == "FOUND":
            for each in decode_stored(java.body):
                place = each.topic, each.queue_id, each.queue_offset
                self._queues[each.physical_offset] = place

    async def moved(self, request: Command) -> Command:
        """The request with our places."""
        if request.code in TIMES:
            return at_our_time(request)
        if "invisibleTime" in request.ext_fields or "extraInfo" in request.ext_fields:
            return self._of_our_pop(request)
        if request.ext_fields.get(HANDLE) in self._handles:
            handle = self._handles[request.ext_fields[HANDLE]]
            fields = request.ext_fields | {HANDLE: handle}
            return msgspec.structs.replace(request, ext_fields=fields)
        name = PLACE_NAMES.get(request.code)
        if name is None:
            return request
        text = request.ext_fields[name]
        if re.fullmatch(MESSAGE_ID, text):
            text = f"{text[:-16]}{await self._our(int(text[-16:], 16)):016X}"
        elif text.isdigit():
            text = str(await self._our(int(text)))
        fields = request.ext_fields | {name: text}
        return msgspec.structs.replace(request, ext_fields=fields)

    def _of_our_pop(self, request: Command) -> Command:
        """A POP with a short invisible time, or an ack with our handle."""
        fields = dict(request.ext_fields)
        if "invisibleTime" in fields:
            fields["invisibleTime"] = str(min(int(fields["invisibleTime"]), 1_000))
        parts = fields.get("extraInfo", "").split(" ")
        if len(parts) > 5 and parts[1] in self._pops:
            parts[1:4] = self._pops[parts[1]]
            parts[5] = SETTINGS["brokerName"]
            fields["extraInfo"] = " ".join(parts)
        return msgspec.structs.replace(request, ext_fields=fields)

    async def _our(self, java: int) -> int:
        """Our place of the same message; a delayed one may take a moment."""
        if java not in self._queues:
            return java
        for _ in range(40):
            body = self._store.reads.get(*self._queues[java], 1).body
            if body:
                return decode_stored(body)[0].physical_offset
            await trio.sleep(0.05)
        return java


def at_our_time(request: Command) -> Command:
    """A send whose message is due as long after now as it was after its birth."""
    properties, born = TIMES[request.code]
    text = request.ext_fields.get(properties, "")
    shift_ms = int(time.time() * 1_000) - int(request.ext_fields.get(born, "0"))
    moved = re.sub(
        r"(?<=TIMER_DELIVER_MS\x01)\d+(?=\x02)",
        lambda found: str(int(found[0]) + shift_ms),
        text,
    )
    if moved == text:
        return request
    fields = request.ext_fields | {properties: moved}
    return msgspec.structs.replace(request, ext_fields=fields)


HANDLE = "recallHandle"
TIMES: dict[int, tuple[str, str]] = {
    RequestCode.SEND_MESSAGE: ("properties", "bornTimestamp"),
    RequestCode.SEND_MESSAGE_V2: ("i", "g"),
}
"""Names of the fields with the properties and the time of birth."""

MESSAGE_ID = "[0-9A-F]{32}"
PLACE_NAMES: dict[int, str] = {
    RequestCode.VIEW_MESSAGE_BY_ID: "offset",
    RequestCode.CONSUMER_SEND_MSG_BACK: "offset",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: "msgId",
}


async def replay(name: str, rows: list[Row], folder: Path, report: Report) -> None:
    """One conversation with one node."""
    answers = exchanges(rows)
    settings = SETTINGS if name.startswith("probe-") else WITH_SQL
    async with running_node(folder, settings) as node, AsyncExitStack() as stack:
        links: dict[Connection, Link] = {}
        held: dict[int, Command] = {}
        places = {id(row): place for place, row in answers.items()}
        asked = questions(rows)
        context = node.broker.context
        log = Places(context.store)

        async def link_to(connection: Connection) -> Link:
            if connection not in links:
                stream = await trio.open_tcp_stream(*address_of(node, connection[0]))
                await stack.enter_async_context(stream)
                links[connection] = Link(stream)
            return links[connection]

        await prepare(node, await link_to(("broker", -1)), rows, answers)
        for place, row in enumerate(rows):
            link = await link_to(row.connection)
            if place in asked and asked[place] not in NOT_PUSHED:
                await link.respond(asked[place], row.command)
            elif row.command.is_response:
                request = held.pop(places.get(id(row), -1), None)
                if request is not None:
                    answer = await link.answer(request.opaque)
                    log.learn(row.command, answer)
                    compare(name, request, answer, row.command, report)
            elif row.is_from_client:
                java = answers.get(place)
                request = await log.moved(not_held(row.command, java))
                if java is not None:
                    await put_key_values(link, key_values(request, java.command))
                await link.send(request)
                if request.is_oneway:
                    await link.barrier()
                elif may_be_held(request) or request.code in RELAYED:
                    held[place] = request
                elif java is not None:
                    answer = await link.answer(request.opaque)
                    if is_early(request, answer, java.command):
                        answer = await link.ask_again(request)
                    log.learn(java.command, answer)
                    compare(name, request, answer, java.command, report)
            # a second of notices for each row: minutes are played in a moment
            await context.consumers.notices.end_round(context.next_turn)
        await compare_pushes(name, rows, links, report)


def is_early(request: Command, answer: Command | None, java: Command) -> bool:
    """Whether a topic that just came into being is not in the routes yet."""
    is_unknown = answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST
    return request.code == ROUTE and is_unknown and java.code == 0


# -- comparison


def compare(
    name: str, request: Command, answer: Command | None, java: Command, report: Report
) -> None:
    if (
        answer is not None
        and answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        and java.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    ):
        report.not_yet[request.code] += 1
        return
    text = difference(answer, java)
    line = f"{name}: {request.code} {request.ext_fields}: {text}"
    if not text:
        report.equal += 1
        return
    for reason in INTENDED:
        if (
            reason.code == request.code
            and re.fullmatch(reason.recording, name)
            and re.search(reason.text, line)
        ):
            report.intended[reason] += 1
            return
    report.unexplained.append(line)


async def compare_pushes(
    name: str, rows: list[Row], links: dict[Connection, Link], report: Report
) -> None:
    """Whoever heard of something from Java's broker must have heard of it from ours."""
    pushes = {
        (row.connection, row.command.code)
        for row in rows
        if not row.is_from_client and not row.command.is_response
    }
    for link in links.values():
        await link.barrier()
    for connection, code in sorted(pushes):
        if code in links[connection].pushed:
            report.equal += 1
        elif code in NOT_PUSHED:
            report.not_pushed[code] += 1
        else:
            report.unexplained.append(f"{name}: {connection} was not told {code}")


def difference(answer: Command | None, java: Command) -> str:
    """What a client could tell apart."""
    if answer is None:
        return "no answer"
    found = []
    if answer.code != java.code:
        found.append(f"code {answer.code} ({answer.remark}), Java {java.code}")
    ours, theirs = set(answer.ext_fields), set(java.ext_fields)
    if ours != theirs:
        found.append(f"fields +{sorted(ours - theirs)} -{sorted(theirs - ours)}")
    if not alike(outline(answer.body), outline(java.body)):
        found.append(f"body {outline(answer.body)}, Java {outline(java.body)}")
    return "; ".join(found)


TABLES = frozenset(
    {
        "attributes", "brokerAddrs", "brokerAddrTable", "clusterAddrTable", "data",
        "forbiddenTable", "groupTopicMap", "hostedQueues", "offsetTable",
        "pullOffsetTable",
        "subscriptionGroupTable", "table", "topicConfigTable",
    }
)  # fmt: skip
"""Names of objects whose own names are data."""


def outline(body: bytes) -> object:
    """Names and nesting of a JSON document, or whether there are bytes at all."""
    if body[:1] not in (b"{", b"["):
        return bool(body)
    return outline_of(fastjson.load_json(body))


def outline_of(value: object) -> object:
    """A document without its data.

    What is false or null may be left out, so that neither these nor true are kept.
    """
    if isinstance(value, list):
        return together(value)
    if not isinstance(value, dict):
        return type(value).__name__
    return {
        str(name): together(each.values()) if name in TABLES else outline_of(each)
        for name, each in value.items()
        if each is not None and not isinstance(each, bool)
    }


def together(entries: Iterable[object]) -> list[object]:
    """One outline for all entries of a table or list; nothing if there are none."""
    outlines = [outline_of(each) for each in entries]
    if not outlines or not isinstance(outlines[0], dict):
        return outlines[:1]
    names: dict[str, object] = {}
    for each in outlines:
        assert isinstance(each, dict)
        names |= each
    return [names]


def alike(ours: object, java: object) -> bool:
    """Whether two outlines agree; an empty table agrees with any."""
    if isinstance(ours, list) and isinstance(java, list):
        return not ours or not java or alike(ours[0], java[0])
    if isinstance(ours, dict) and isinstance(java, dict):
        return ours.keys() == java.keys() and all(
            alike(each, java[name]) for name, each in ours.items()
        )
    return ours == java


async def test_replay(tmp_path):
    report = Report()
    for name, run, rows in conversations():
        with trio.fail_after(60):
            await replay(name, rows, tmp_path / f"{name}-{run}", report)
    show(report)
    assert not report.unexplained
    assert set(report.not_yet) == NOT_YET
    assert report.not_pushed.keys() == NOT_PUSHED.keys()


def show(report: Report) -> None:
    """Print the report; unexplained differences in full."""
    lines = ["", "intended differences:"]
    for row in INTENDED:
        lines.append(f"{report.intended[row]:6}  {row.code:6}  {row.reason}")
    lines.append("not pushed:")
    for code, count in sorted(report.not_pushed.items()):
        lines.append(f"{count:6}  {code:6}  {NOT_PUSHED[RequestCode(code)]}")
    lines.append("not yet:")
    for code, count in sorted(report.not_yet.items()):
        lines.append(f"{count:6}  {code:6}  {RequestCode(code).name}")
    lines.append("unexplained:")
    lines += report.unexplained
    lines.append(
        f"equal {report.equal}, intended {report.intended.total()}, "
        f"not yet {report.not_yet.total()} of {len(report.not_yet)} codes, "
        f"unexplained {len(report.unexplained)}"
    )
    print("\n".join(lines))  # noqa: T201 - the report
