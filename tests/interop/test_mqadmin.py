"""mqadmin against rmq: every recorded call again, its output compared with Java's.

The calls of the tools of 5.5.0 and of 4.9.8, and the output that they had with Java's
servers of 5.5.0, are those of the golden recordings; the state before them is made
alike. Two outputs are equal if they have the same shape: titles, sentences, names of
values and error codes, with numbers, times and names of things masked. What differs on
purpose stands in DIFFERS_55 and DIFFERS_49 with its reason.
"""

import base64
import json
import re
import socket
import subprocess
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.properties import encode_properties
from tests.golden.recordings import read_rows
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving
from .processes import broker_arguments, serving
from .toolchains import Java, OldJava, plain_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

NAME = "broker-golden"


class Recording(NamedTuple):
    """What the recorded calls of one version of the tools expect to find."""

    number: str
    toolchain: type[Java]
    unique_prefix: str
    """Of the unique keys of the messages of `topic`, before their number."""

    message_ids: tuple[str, ...]
    """Those of the first messages of `topic` that calls name."""

    elsewhere: re.Pattern[str]
    """Lines about topics and groups of other recordings, and of mqadmin itself."""

    has_producer: bool
    """Whether the producers were online."""

    has_retried: bool
    """Whether an offset of the retry topic was committed."""

    differs: Mapping[str, str]
    """Verdicts of calls whose output is not Java's; they stand in the table."""

    @property
    def topic(self) -> str:
        return f"AdminT{self.number}"

    @property
    def stay(self) -> str:
        return f"G_mqadmin{self.number}_stay"

    @property
    def group(self) -> str:
        return f"C{self.stay}"

    @property
    def producers(self) -> str:
        return f"P{self.stay}"

    @property
    def client_id(self) -> str:
        return f"192.0.2.2@{self.group}"


NOT_HERE = "rmq does not have it; its remark says what to use"
NO_PASSWORD = "only super users see passwords, and nobody before the switch"
KEYS = "rmq has keys of its own, and not all of Java's"
DIFFERS_55 = {
    "topicList-c": "no transaction has run, so that their topics have no group yet",
    "statsAll": "no transaction has run, so that their topics have no group yet",
    "statsAll-topic": "messages are counted at once, not after a sample",
    "brokerStatus": "both spellings of a rate; delay levels when they are used",
    "getBrokerConfig": KEYS,
    "getNamesrvConfig": KEYS,
    "consumerStatus-jstack": "stacks of other threads",
    "getBrokerLiteInfo": "sizes of rmq's own tables",
    **dict.fromkeys(
        ("getBrokerEpoch", "checkRocksdbCqWriteProgress", "switchTimerEngine"),
        NOT_HERE,
    ),
    **dict.fromkeys(("getUser", "listUser"), NO_PASSWORD),
}  # fmt: skip
DIFFERS_49 = {
    "clusterList": "Java 5.5.0 breaks it: getTransferedTps, with one r, is missing",
    "brokerStatus": DIFFERS_55["brokerStatus"],
    "getBrokerConfig": KEYS,
    "getNamesrvConfig": KEYS,
    "consumerProgress-g": "the retry topic has a row once an offset was committed",
    "statsAll": DIFFERS_55["statsAll"],
}
OTHERS = r"java(49|55)|^(%RETRY%)?TOOLS_CONSUMER|ListT|^#.*Total:|RMQ_SYS_TRANS"
RECORDINGS = (
    Recording(
        "55",
        Java,
        "7F000001123418B4AAC267940783",
        ("7F0000020000597F00000000000182A0", "7F0000020000597F0000000000018392"),
        re.compile(OTHERS),
        True,
        True,
        DIFFERS_55,
    ),
    Recording(
        "49",
        OldJava,
        "7F000001123418B4AAC2679737A3",
        ("7F0000020000597F0000000000019D2F",),
        re.compile(f"{OTHERS}|(Adm|mqadmin|List)[A-Za-z]*55"),
        False,
        False,
        DIFFERS_49,
    ),
)


# -- Java's recorded calls


def recorded(golden, number):
    return read_rows(golden / "frames" / f"mqadmin{number}-output.jsonl")


class Tools:
    """mqadmin in one JVM, a command at a time."""

    def __init__(self, java, home):
        self._java, self._home = java, home
        (home / "conf").mkdir()
        # without it those of 4.9.8 refuse to run
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        self._start()

    def _start(self):
        command, home = self._java.command("AdminRun"), self._home
        self._process = subprocess.Popen(
            [
                command[0],
                f"-Duser.home={home}",
                f"-Drocketmq.home.dir={home}",
                *command[1:],
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=home,
            env=plain_environment() | {"HOME": str(home)},
        )

    def run(self, arguments):
        self._process.stdin.write("\x01".join(arguments) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the JVM is gone"
        output = base64.b64decode(line).decode("utf-8", "replace")
        if "SHUTDOWN_ALREADY" in output or "NOT FINISHED" in output:
            self.close()
            self._start()
        return output

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


# -- the state that Java's broker had


def put(broker, topic, queue_id, body, properties):
    fields = {
        "producerGroup": "before", "topic": topic, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4, "queueId": queue_id, "sysFlag": 0,
        "bornTimestamp": 1_795_228_954_499, "flag": 0,
        "properties": encode_properties(properties), "reconsumeTimes": 0,
        "unitMode": "false", "batch": "false",
    }  # fmt: skip
    answer = wire.call(broker, 10, fields, body)
    assert answer.code == 0, answer.remark
    return answer.ext_fields["msgId"]


def make_state(broker, recording):
    """Make the topics with their messages; the ids of those of its topic."""
    wire.make_topic(broker, recording.topic, 2)
    wire.make_topic(broker, recording.stay, 2)
    for number in range(12):
        put(broker, recording.stay, number % 2, b"stay", {"TAGS": "TagA"})
    ids = []
    for number in range(6):
        unique = f"{recording.unique_prefix}{number:04X}"
        properties = {
            "UNIQ_KEY": unique, "TAGS": "TagA", "KEYS": f"adminkey k{number}",
        }  # fmt: skip
        body = b"admin body %d" % number
        ids.append(put(broker, recording.topic, number % 2, body, properties))
    return ids


def fill(broker, topic, end):
    """Send until the first queue ends there: tools before may have chosen another."""
    while True:
        answer = wire.call(broker, 30, {"topic": topic, "queueId": 0})
        if int(answer.ext_fields["offset"]) >= end:
            return
        put(broker, topic, 0, b"more", {"TAGS": "TagA"})


def keep_online(broker, producers):
    """Return a connection whose heartbeat made producers known."""
    data = {
        "clientID": f"192.0.2.2@{producers}",
        "producerDataSet": [
            {"groupName": producers},
            {"groupName": "CLIENT_INNER_PRODUCER"},
        ],
        "consumerDataSet": [],
    }
    host, _, port = broker.rpartition(":")
    link = socket.create_connection((host, int(port)), timeout=10)
    body = json.dumps(data).encode()
    link.sendall(encode(Command(34, {}, body, opaque=1, language="JAVA", version=513)))
    assert link.recv(1)
    return link


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda one: one.number)
def test_every_recorded_call(recording, golden, tmp_path, capsys):
    java, consumers = prepared(recording.toolchain()), prepared(Java())
    stay, group = recording.stay, recording.group
    make_request_files(tmp_path / "request")
    arguments = broker_arguments(
        tmp_path / "store", f"brokerName={NAME}", "traceTopicEnable=true"
    )
    with serving(*arguments) as server:
        broker = server.address
        ids = make_state(broker, recording)
        with (
            keep_online(broker, recording.producers if recording.has_producer else "P"),
            driving(
                consumers,
                tmp_path / "in",
                "push",
                server.namesrv,
                stay,
                0,
                f"group={group}",
            ) as consumer,
        ):
            consumer.wait_ready()
            wait_until(lambda: wire.members(broker, group), "consumer")
            (client_id,) = wire.members(broker, group)
            wait_until(lambda: wire.committed(broker, group, stay, 2) == 12, "offsets")
            retry = f"%RETRY%{group}"
            wait_until(lambda: wire.holds(broker, group, client_id, retry), "retry", 90)
            if recording.has_retried:
                fields = {"consumerGroup": group, "topic": retry}
                wire.call(broker, 15, {**fields, "queueId": 0, "commitOffset": 0})
            replace = {
                "127.0.0.2:22876": server.namesrv,
                "127.0.0.2:22911": broker,
                "/tmp/rmq-golden": str(tmp_path),
                recording.client_id: client_id,
                **dict(zip(recording.message_ids, ids, strict=False)),
            }
            table = {}
            tools = Tools(java, tmp_path)
            try:
                for call in recorded(golden, recording.number):
                    if call["name"] == "consumeMessage-queue":
                        fill(broker, recording.topic, 4)
                    table[call["name"]] = compare(call, tools, replace, recording)
            finally:
                tools.close()
    with capsys.disabled():
        show(java.name, table)
    failed = [name for name, verdict in table.items() if verdict.startswith("FAILED")]
    assert not failed


def make_request_files(folder):
    """Write the lists that `updateTopicList` and `updateSubGroupList` read."""
    folder.mkdir()
    config = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    topics = [{"topicName": name, **config} for name in ("ListT1", "ListT2")]
    groups = [{"groupName": name} for name in ("ListG1", "ListG2")]
    (folder / "topics.json").write_text(json.dumps(topics))
    (folder / "groups.json").write_text(json.dumps(groups))


def compare(call, tools, replace, recording):
    """Run a call; its verdict."""
    text = call["args"]
    for old, new in replace.items():
        text = text.replace(old, new)
    output = tools.run(text.split(" "))
    if "SHUTDOWN_ALREADY" in output:  # a command that can be run once in a process
        output = tools.run(text.split(" "))
    for old, new in replace.items():
        output = output.replace(new, old)
    elsewhere = recording.elsewhere
    ours, java = shape(output, elsewhere), shape(call["output"], elsewhere)
    if ours == java:
        return "equal"
    reason = recording.differs.get(call["name"])
    return reason or f"FAILED: +{sorted(ours - java)[:4]} -{sorted(java - ours)[:4]}"


def show(tools, table):
    width = max(map(len, table))
    print(f"\nmqadmin of {tools}")
    for name, verdict in table.items():
        print(f"{name:{width}}  {verdict}")


# -- shapes

MASKS = (
    (re.compile(r"\b[0-9A-Fa-f]{16,}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[ #]\d\d:\d\d:\d\d[,:.]?\d*"), "TIME"),
    (re.compile(r"/?\d+\.\d+\.\d+\.\d+(:\d+)?"), "ADDRESS"),
    (re.compile(r"\b\d+\.\d+\b"), "X"),
    (re.compile(r"\d{8,}|\b\d\d+\b"), "N"),
    (
        re.compile(
            r"(?<=ffset=)\d+|(?<=Mills=)\d+|(?<= true )\s*\d+|(?<=Diff Total:).*"
        ),
        "N",
    ),
    (re.compile(r"\b\d+ms"), "Nms"),
    (re.compile(r"\d+(?=\s+SEND_OK)"), "N"),
    # the rate of a group, between its model and what it is behind
    (re.compile(r"(?<=CLUSTERING)\s+\d+|(?<=OFFLINE)\s+\d+"), " RATE"),
    (re.compile(r"(=|-)+={5,}"), "=="),
    (re.compile(r"\s+"), " "),
)
VALUE = re.compile(r"^([\w.%/@$-]+?)\s*[:=]\s")
ERROR = re.compile(r"CODE: (\d+)")


def shape(output, elsewhere):
    """Return what of an output must be the same: lines without what may vary."""
    errors = set(ERROR.findall(output))
    if errors:
        return {f"error {code}" for code in errors}
    found = set()
    for line in output.splitlines():
        if not line.strip() or line.startswith("\tat ") or elsewhere.search(line):
            continue
        match = VALUE.match(line)
        text = f"{match[1]}:" if match else line
        for pattern, name in MASKS:
            text = pattern.sub(name, text)
        found.add(text.strip())
    return found
