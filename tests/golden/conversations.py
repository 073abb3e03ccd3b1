"""Recorded conversations of clients with Java's servers, and nodes that replay them.

Before a conversation the node gets the topics that Java's broker had by then, and as
many messages in them.
"""

import base64
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import trio

from rmq.protocol import fastjson
from rmq.protocol.batch import decode_batch
from rmq.protocol.bodies.topics import BATCH_QUEUES, QUEUE_TYPE, TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, decode, encode
from rmq.protocol.headers.send import decode_send_header
from tests.golden.recordings import frame_files, read_rows, unpacked

PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
STATE = (0, 19, 20, 21, 22)
"""Codes that are answered only about topics that exist."""
SUSPEND = 2
SETTINGS = {"brokerName": "broker-golden"}
WITH_SQL = {
    **SETTINGS, "enablePropertyFilter": "true", "recallMessageEnable": "true",
}  # fmt: skip
"""Of the broker that all but the probes talked to."""

PROXY = "proxy55"
PARTS = ("start", "normal", "fifo", "delay", "trans", "push", "end")
"""The files that Java's proxy fills in this order, on the same connections."""

Connection = tuple[str, int]
"""What a client talks to, and the number of its connection."""


class Row(NamedTuple):
    """One recorded frame."""

    connection: Connection
    is_from_client: bool
    command: Command


class Link:
    """One connection; answers are kept by the opaque of their request."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self._answers: dict[int, Command] = {}
        self.pushed: set[int] = set()
        self._questions: list[Command] = []

    async def send(self, request: Command) -> None:
        await self._stream.send_all(encode(request))

    async def answer(self, opaque: int) -> Command | None:
        """Wait a while for an answer."""
        with trio.move_on_after(5):
            while opaque not in self._answers and await self._receive():
                pass
        return self._answers.pop(opaque, None)

    async def respond(self, code: int, response: Command) -> None:
        """Answer the broker's next request of this code as the client did."""
        with trio.move_on_after(3):
            while not any(each.code == code for each in self._questions):
                if not await self._receive():
                    return
        for place, question in enumerate(self._questions):
            if question.code == code:
                del self._questions[place]
                opaque = question.opaque
                await self.send(msgspec.structs.replace(response, opaque=opaque))
                return

    async def _receive(self) -> bool:
        data = await self._stream.receive_some(1 << 16)
        for command in self._decoder.feed(data):
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.pushed.add(command.code)
                self._questions.append(command)
        return bool(data)

    async def ask_again(self, request: Command) -> Command | None:
        """Ask for a route until it is there, for a second at most."""
        for _ in range(20):
            await trio.sleep(0.05)
            await self.send(request)
            answer = await self.answer(request.opaque)
            if answer is None or answer.code == 0:
                break
        return answer

    async def barrier(self) -> None:
        """Return when everything sent so far was handled."""
        await self.send(Command(9999, opaque=-1, language="PYTHON"))
        await self.answer(-1)


def read(path: Path) -> dict[int, list[Row]]:
    """The frames of a recording; it may have been made in several runs."""
    runs: dict[int, list[Row]] = {}
    for row in read_rows(path):
        command = decode(base64.b64decode(row["raw"]))
        connection = row["to"], row["conn"]
        frame = Row(connection, row["dir"] == "c2s", command)
        runs.setdefault(row.get("run", 0), []).append(frame)
    return runs


def conversations() -> Iterator[tuple[str, int, list[Row]]]:
    """All that was recorded: name, run and frames, each from its first frame on."""
    for path in frame_files():
        if not path.stem.startswith(PROXY):
            for run, rows in read(path).items():
                yield path.stem, run, rows
    parts = [unpacked() / "frames" / f"{PROXY}-{part}.jsonl" for part in PARTS]
    yield PROXY, 0, [row for path in parts for row in read(path)[0]]


def exchanges(rows: list[Row]) -> dict[int, Row]:
    """The recorded answer of every request, by the request's place."""
    asked: dict[tuple[Connection, int], int] = {}
    found = {}
    for place, row in enumerate(rows):
        key = (row.connection, row.command.opaque)
        if row.is_from_client and not row.command.is_response:
            asked[key] = place
        elif row.command.is_response and key in asked:
            found[asked.pop(key)] = row
    return found


def address_of(node, to: str) -> tuple[str, int]:
    if to == "namesrv":
        host, _, port = node.name_servers[0].rpartition(":")
        return host, int(port)
    port = node.broker.fast_port if to == "fast" else node.broker.port
    return "127.0.0.1", port


def may_be_held(request: Command) -> bool:
    """Whether a pull or a POP may wait for messages that come later."""
    if request.code == RequestCode.POP_MESSAGE:
        return request.ext_fields.get("pollTime", "0") != "0"
    flag = request.ext_fields.get("sysFlag", "")
    return request.code in PULLS and flag.isdigit() and bool(int(flag) & SUSPEND)


def not_held(request: Command, java: Row | None) -> Command:
    """The request; a pull that Java answered at the end of its wait does not wait."""
    if not may_be_held(request) or (java is not None and java.command.code == 0):
        return request
    if request.code == RequestCode.POP_MESSAGE:
        fields = request.ext_fields | {"pollTime": "0"}
        return msgspec.structs.replace(request, ext_fields=fields)
    flag = int(request.ext_fields["sysFlag"]) & ~SUSPEND
    fields = request.ext_fields | {"sysFlag": str(flag)}
    return msgspec.structs.replace(request, ext_fields=fields)


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
        if (
            topic not in decided
            and row.command.code != RequestCode.UPDATE_AND_CREATE_TOPIC
        ):
            decided.add(topic)
            if answer.code in STATE:
                found[topic] = 1
        elif topic not in decided:
            decided.add(topic)
        if topic in found:
            found[topic] = max(found[topic], queues_seen(row.command, answer))
    return found


def queues_seen(request: Command, answer: Command) -> int:
    if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and answer.code == 0:
        data = fastjson.load_json(answer.body)["queueDatas"]
        return max((each["readQueueNums"] for each in data), default=1)
    name = "e" if request.code in (310, 320) else "queueId"
    text = request.ext_fields.get(name, "0")
    if answer.code not in STATE or not text.isdigit():
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
        if "recallHandle" in fields:
            continue  # its offset is that of the queue of timers
        if answer.code == 0 and request.code in SENDS and "queueOffset" in fields:
            queue = (topic or "", int(fields["queueId"]))
            before.setdefault(queue, int(fields["queueOffset"]) - sent[queue])
            header = decode_send_header(request.code, request.ext_fields)
            is_batch = header.batch or request.code == RequestCode.SEND_BATCH_MESSAGE
            sent[queue] += len(decode_batch(request.body)) if is_batch else 1
        elif request.code in PULLS and "maxOffset" in fields:
            queue = (topic or "", int(request.ext_fields["queueId"]))
            before.setdefault(queue, int(fields["maxOffset"]) - sent[queue])
        elif (
            request.code == RequestCode.QUERY_CONSUMER_OFFSET
            and answer.code == ResponseCode.QUERY_NOT_FOUND
        ):
            before.setdefault((topic or "", int(request.ext_fields["queueId"])), 0)
        elif request.code == RequestCode.GET_MAX_OFFSET and "offset" in fields:
            queue = (topic or "", int(request.ext_fields["queueId"]))
            before.setdefault(queue, int(fields["offset"]) - sent[queue])
    return before


GROUP_NAMES: dict[int, str] = {
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumerGroup",
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "group",
}


def groups_before(rows: list[Row], answers: dict[int, Row]) -> set[str]:
    """Groups for which an offset could be stored or reset."""
    found = set()
    for place, row in enumerate(rows):
        name = GROUP_NAMES.get(row.command.code)
        is_asked = name and row.is_from_client and place in answers
        if is_asked and answers[place].command.code == 0:
            found.add(row.command.ext_fields[name])
    return found


def batch_topics(rows: list[Row], answers: dict[int, Row]) -> set[str | None]:
    """Topics with queues of inner batches, as an answer shows."""
    return {
        topic_of(row.command)
        for place, row in enumerate(rows)
        if place in answers and "batchUniqId" in answers[place].command.ext_fields
    }


async def prepare(node, link: Link, rows: list[Row], answers: dict[int, Row]) -> None:
    topics, batches = topics_before(rows, answers), batch_topics(rows, answers)
    for topic, queues in topics.items():
        if node.broker.context.topics.get(topic) is None:
            node.broker.context.topics.update(
                TopicConfig(
                    topic_name=topic,
                    read_queue_nums=queues,
                    write_queue_nums=queues,
                    perm=6,
                    attributes={QUEUE_TYPE: BATCH_QUEUES} if topic in batches else {},
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
    for group in groups_before(rows, answers):
        node.broker.context.groups.find(group)
