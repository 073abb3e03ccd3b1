"""Recorded conversations of Java's servers with all clients, replayed against rmq.

Every request goes over the wire to a fresh node, byte by byte as it was recorded and in
the recorded order, and must bring the same response code, the same field names and a
body of the same shape.  What differs on purpose stands in INTENDED with its reason; the
codes that rmq does not serve yet stand in NOT_YET by name.  `pytest -s` prints the
report.

Before a conversation the node gets the topics that Java's broker had by then, and as
many messages in them.  Pulls that Java held until they ran out are not held.
"""

import base64
import json
import lzma
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest
import trio

from rmq.protocol import fastjson
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, decode, encode
from rmq.protocol.headers.send import decode_send_header
from rmq.protocol.message import decode_batch
from rmq.testing import running_node

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
ASKED_BEFORE = (105, 29, 30, 31, 32, 14, 202, 208, *PULLS)
SUSPEND = 2
SETTINGS = {"brokerName": "broker-golden"}


class Intended(NamedTuple):
    """A difference that is meant: where, of which code, how it looks, and why."""

    recording: str
    code: int
    text: str
    reason: str


INTENDED: list[Intended] = []

NOT_YET: set[str] = set()


class Row(NamedTuple):
    """One recorded frame."""

    connection: tuple[Any, ...]
    is_from_client: bool
    command: Command
    raw: bytes


@dataclass
class Report:
    """What the replay found."""

    equal: int = 0
    not_yet: Counter[int] = field(default_factory=Counter)
    intended: Counter[Intended] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)


class Link:
    """One connection; answers are kept by the opaque of their request."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._answers: dict[int, Command] = {}

    async def send(self, request: Command) -> None:
        await self._stream.send_all(encode(request))

    async def answer(self, opaque: int) -> Command | None:
        """Wait a while for an answer."""
        with trio.move_on_after(3):
            while opaque not in self._answers:
                data = await self._stream.receive_some(1 << 16)
                if not data:
                    return None
                for command in self._decoder.feed(data):
                    if command.is_response:
                        self._answers[command.opaque] = command
        return self._answers.pop(opaque, None)

    async def barrier(self) -> None:
        """Return when everything sent so far was handled."""
        await self.send(Command(9999, opaque=-1, language="PYTHON"))
        await self.answer(-1)


def read(path) -> list[Row]:
    with lzma.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    return [
        Row(
            (row["to"], row.get("run"), row["conn"]),
            row["dir"] == "c2s",
            decode(base64.b64decode(row["raw"])),
            base64.b64decode(row["raw"]),
        )
        for row in rows
    ]


def exchanges(rows: list[Row]) -> dict[int, Row]:
    """The recorded answer of every request, by the request's place."""
    asked: dict[tuple[Any, ...], int] = {}
    found = {}
    for place, row in enumerate(rows):
        key = (row.connection, row.command.opaque)
        if row.is_from_client and not row.command.is_response:
            asked[key] = place
        elif row.command.is_response and key in asked:
            found[asked.pop(key)] = row
    return found


# -- what the broker had before


def topic_of(request: Command) -> str | None:
    name = "b" if request.code in (310, 320) else "topic"
    return request.ext_fields.get(name)


def topics_before(rows: list[Row], answers: dict[int, Row]) -> dict[str, int]:
    """Topics that were there before anybody asked, with their queues."""
    found: dict[str, int] = {}
    decided: set[str] = set()
    for place, row in enumerate(rows):
        topic = topic_of(row.command) if row.is_from_client else None
        if topic is None or place not in answers:
            continue
        answer = answers[place].command
        if topic not in decided and row.command.code != 17:
            decided.add(topic)
            if answer.code in (0, 19, 20, 21, 22):
                found[topic] = 1
        elif topic not in decided:
            decided.add(topic)
        if topic in found:
            found[topic] = max(found[topic], queues_seen(row.command, answer))
    return found


def queues_seen(request: Command, answer: Command) -> int:
    if request.code == 105 and answer.code == 0:
        data = fastjson.loads(answer.body)["queueDatas"]
        return max((each["readQueueNums"] for each in data), default=1)
    name = "e" if request.code in (310, 320) else "queueId"
    text = request.ext_fields.get(name, "0")
    if answer.code not in (0, 19, 20, 21, 22) or not text.isdigit():
        return 1
    return int(text) + 1


def messages_before(
    rows: list[Row], answers: dict[int, Row]
) -> dict[tuple[str, int], int]:
    """How many messages a queue had, as its first answer tells."""
    before: dict[tuple[str, int], int] = {}
    sent: Counter[tuple[str, int]] = Counter()
    for place, row in enumerate(rows):
        request = row.command
        if not row.is_from_client or place not in answers:
            continue
        answer = answers[place].command
        fields, topic = answer.ext_fields, topic_of(request)
        if answer.code == 0 and request.code in SENDS and "queueOffset" in fields:
            queue = (topic or "", int(fields["queueId"]))
            before.setdefault(queue, int(fields["queueOffset"]) - sent[queue])
            header = decode_send_header(request.code, request.ext_fields)
            is_batch = header.batch or request.code == 320
            sent[queue] += len(decode_batch(request.body)) if is_batch else 1
        elif request.code in PULLS and "maxOffset" in fields:
            queue = (topic or "", int(request.ext_fields["queueId"]))
            before.setdefault(queue, int(fields["maxOffset"]) - sent[queue])
        elif request.code == RequestCode.GET_MAX_OFFSET and "offset" in fields:
            queue = (topic or "", int(request.ext_fields["queueId"]))
            before.setdefault(queue, int(fields["offset"]) - sent[queue])
    return before


async def prepare(node, link: Link, rows: list[Row], answers: dict[int, Row]) -> None:
    topics = topics_before(rows, answers)
    for topic, queues in topics.items():
        if node.broker.context.topics.get(topic) is None:
            node.broker.context.topics.update(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=6,
                )
            )
    for (topic, queue_id), count in messages_before(rows, answers).items():
        if topic not in topics:
            continue
        for _ in range(count):
            fields = {
                "producerGroup": "before", "topic": topic, "defaultTopic": "TBW102",
                "defaultTopicQueueNums": "4", "queueId": str(queue_id), "sysFlag": "0",
                "bornTimestamp": "1795230112758", "flag": "0", "properties": "",
            }  # fmt: skip
            await link.send(Command(10, fields, b"before", opaque=1))
            answer = await link.answer(1)
            assert answer is not None
            assert answer.code == 0, (topic, queue_id, answer.remark)
    await trio.sleep(0.01)


# -- replay


async def replay(path, folder, report: Report) -> None:
    rows = read(path)
    answers = exchanges(rows)
    async with running_node(folder, SETTINGS) as node, trio.open_nursery():
        links: dict[tuple[Any, ...], Link] = {}
        streams = []

        async def link_to(connection):
            if connection not in links:
                stream = await trio.open_tcp_stream(*address_of(node, connection[0]))
                streams.append(stream)
                links[connection] = Link(stream)
            return links[connection]

        await prepare(node, await link_to(("broker", None, "before")), rows, answers)
        for place, row in enumerate(rows):
            if not row.is_from_client:
                continue
            if row.command.is_response:
                continue
            link = await link_to(row.connection)
            java = answers.get(place)
            await link.send(not_held(row.command, java))
            if row.command.is_oneway:
                await link.barrier()
            elif java is not None:
                compare(
                    path.name.split(".")[0],
                    row.command,
                    await link.answer(row.command.opaque),
                    java.command,
                    report,
                )
        for stream in streams:
            await stream.aclose()


def address_of(node, to: str) -> tuple[str, int]:
    if to == "namesrv":
        host, _, port = node.name_servers[0].rpartition(":")
        return host, int(port)
    port = node.broker.fast_port if to == "fast" else node.broker.port
    return "127.0.0.1", port


def not_held(request: Command, java: Row | None) -> Command:
    """The request; a pull that Java answered at the end of its wait does not wait."""
    found = java is not None and java.command.code == 0
    if request.code not in PULLS or found:
        return request
    flag = request.ext_fields.get("sysFlag", "")
    if not flag.isdigit():
        return request
    fields = request.ext_fields | {"sysFlag": str(int(flag) & ~SUSPEND)}
    return Command(
        request.code, fields, request.body, opaque=request.opaque, flag=request.flag,
        language=request.language, version=request.version,
        serialize_type=request.serialize_type,
    )  # fmt: skip


# -- comparison


def compare(
    name: str, request: Command, answer: Command | None, java: Command, report: Report
) -> None:
    if answer is not None and answer.code == 3 and java.code != 3:
        report.not_yet[request.code] += 1
        return
    text = difference(answer, java)
    if not text:
        report.equal += 1
        return
    for reason in INTENDED:
        if (
            reason.code == request.code
            and re.fullmatch(reason.recording, name)
            and re.search(reason.text, text)
        ):
            report.intended[reason] += 1
            return
    report.unexplained.append(f"{name}: {request.code} {request.ext_fields}: {text}")


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
    if shape(answer.body) != shape(java.body):
        found.append(f"body {shape(answer.body)}, Java {shape(java.body)}")
    return "; ".join(found)


def shape(body: bytes) -> object:
    """Names and nesting of a JSON document, or whether there are bytes at all."""
    if not body[:1] in (b"{", b"["):
        return bool(body)
    return outline(fastjson.loads(body))


TABLES = {
    "brokerAddrTable",
    "clusterAddrTable",
    "brokerAddrs",
    "offsetTable",
    "table",
    "topicConfigTable",
    "subscriptionGroupTable",
    "data",
    "groupTopicMap",
}


def outline(value: object) -> object:
    """A document without its data: what is false or null may as well be left out."""
    if isinstance(value, dict):
        return {
            str(name): merged(each) if name in TABLES else outline(each)
            for name, each in value.items()
            if each is not None and each is not False
        }
    if isinstance(value, list):
        return merged(dict(enumerate(value)))
    return type(value).__name__


def merged(table: object) -> object:
    """The outlines of all entries of a table together."""
    if not isinstance(table, dict):
        return outline(table)
    found: dict[str, object] = {}
    for each in table.values():
        shape_of_one = outline(each)
        if not isinstance(shape_of_one, dict):
            return [shape_of_one]
        found |= shape_of_one
    return [found]


async def test_replay(golden, tmp_path):
    report = Report()
    for path in sorted((golden / "frames").glob("*.jsonl.xz")):
        if path.name.startswith("ha-") or "-output." in path.name:
            continue
        with trio.fail_after(60):
            await replay(path, tmp_path / path.name, report)
    show(report)
    assert not report.unexplained


def show(report: Report) -> None:
    print(f"\nequal {report.equal}, not yet {report.not_yet.total()}")
    codes = Counter(line.split(": ")[1].split(" ")[0] for line in report.unexplained)
    print("unexplained", len(report.unexplained), codes)
    for line in report.unexplained:
        print(line[:600])
    for code, count in sorted(report.not_yet.items()):
        print("not yet", code, count)
