"""mqadmin 5.5.0 against rmq: every recorded call again, its output held against Java's.

The calls and Java's output are those of the golden recordings; the state before them is
made alike. Two outputs are equal if they have the same shape: titles, sentences, names
of values and error codes, with numbers, times and names of things masked. What differs
on purpose stands in DIFFERS with its reason.
"""

import base64
import json
import lzma
import re
import socket
import subprocess

import pytest

from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.properties import encode_properties

from . import wire
from .conftest import prepared
from .drivers import driving, eventually
from .processes import broker_arguments, serving
from .toolchains import Java, plain_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

NAME = "broker-golden"
STAY, GROUP, PRODUCERS = "G_mqadmin55_stay", "CG_mqadmin55_stay", "PG_mqadmin55_stay"
TOPIC = "AdminT55"
CLIENT_ID = "192.0.2.2@CG_mqadmin55_stay"
MESSAGE_ID = re.compile(r"7F0000020000597F[0-9A-F]{16}")

NOT_HERE = "rmq does not have it; its remark says what to use"
LATER = "not served yet"
KEYS = "rmq has keys of its own, and not all of Java's"
DIFFERS = {
    "topicList-c": "no transaction has run, so that their topics have no group yet",
    "statsAll": "no transaction has run, so that their topics have no group yet",
    "statsAll-topic": "messages are counted at once, not after a sample",
    "setConsumeMode": f"POP is {LATER}",
    "brokerStatus": "both spellings of a rate; delay levels when they are used",
    "getBrokerConfig": KEYS,
    "updateBrokerConfig": "the key may not change while the broker runs",
    "getNamesrvConfig": LATER,
    "updateNamesrvConfig": LATER,
    "consumerStatus-jstack": "stacks of other threads",
    **dict.fromkeys(
        (
            "exportPopRecord", "updateStaticTopic", "topicRoute-static",
            "remappingStaticTopic", "getBrokerEpoch", "getColdDataFlowCtrInfo",
            "updateColdDataFlowCtrGroupConfig", "removeColdDataFlowCtrGroupConfig",
            "setCommitLogReadAheadMode", "checkRocksdbCqWriteProgress",
            "switchTimerEngine", "getBrokerLiteInfo", "resetMasterFlushOffset",
        ),
        NOT_HERE,
    ),
    **dict.fromkeys(
        (
            "createUser", "updateUser", "getUser", "listUser", "createAcl", "updateAcl",
            "getAcl", "listAcl", "deleteAcl", "deleteUser", "getUser-none",
        ),
        LATER,
    ),
}  # fmt: skip
"""Verdicts of calls whose output is not Java's; they stand in the table."""

TABLE: dict[str, str] = {}


# -- Java's recorded calls


def recorded(golden):
    with lzma.open(golden / "frames" / "mqadmin55-output.jsonl.xz", "rt") as file:
        return [json.loads(line) for line in file]


class Tools:
    """mqadmin in one JVM, a command at a time."""

    def __init__(self, java, home):
        self._java, self._home = java, home
        self._start()

    def _start(self):
        command, home = self._java.command("AdminRun"), self._home
        self._process = subprocess.Popen(
            [command[0], f"-Duser.home={home}", *command[1:]],
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


def make_state(broker):
    """Make the topics with their messages; the ids of those of TOPIC."""
    wire.make_topic(broker, TOPIC, 2)
    wire.make_topic(broker, STAY, 2)
    for number in range(12):
        put(broker, STAY, number % 2, b"stay", {"TAGS": "TagA"})
    ids = []
    for number in range(6):
        unique = f"7F000001123418B4AAC267940783{number:04X}"
        properties = {
            "UNIQ_KEY": unique, "TAGS": "TagA", "KEYS": f"adminkey k{number}",
        }  # fmt: skip
        body = b"admin body %d" % number
        ids.append(put(broker, TOPIC, number % 2, body, properties))
    return ids


def keep_producer_online(broker):
    """Return a connection whose heartbeat made PRODUCERS known."""
    data = {
        "clientID": "192.0.2.2@PG_mqadmin55_stay",
        "producerDataSet": [
            {"groupName": PRODUCERS},
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


def test_every_recorded_call(golden, tmp_path, capsys):
    java = prepared(Java())
    request = tmp_path / "request"
    request.mkdir()
    config = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
    topics = [{"topicName": name, **config} for name in ("ListT1", "ListT2")]
    groups = [{"groupName": name} for name in ("ListG1", "ListG2")]
    (request / "topics.json").write_text(json.dumps(topics))
    (request / "groups.json").write_text(json.dumps(groups))
    arguments = broker_arguments(
        tmp_path / "store", f"brokerName={NAME}", "traceTopicEnable=true"
    )
    with serving(*arguments) as server:
        broker = server.address
        ids = make_state(broker)
        link = keep_producer_online(broker)
        with driving(
            java, tmp_path / "in", "push", server.namesrv, STAY, 0, f"group={GROUP}"
        ) as consumer:
            consumer.wait_ready()
            eventually(lambda: wire.members(broker, GROUP), "consumer")
            (client_id,) = wire.members(broker, GROUP)
            eventually(lambda: wire.committed(broker, GROUP, STAY, 2) == 12, "offsets")
            replace = {
                "127.0.0.2:22876": server.namesrv,
                "127.0.0.2:22911": broker,
                "/tmp/rmq-golden/request": str(request),
                "/tmp/rmq-golden": str(tmp_path),
                CLIENT_ID: client_id,
                "7F0000020000597F00000000000182A0": ids[0],
                "7F0000020000597F0000000000018392": ids[1],
            }
            tools = Tools(java, tmp_path)
            try:
                for call in recorded(golden):
                    compare(call, tools, replace)
            finally:
                tools.close()
        link.close()
    with capsys.disabled():
        show()
    failed = [name for name, verdict in TABLE.items() if verdict.startswith("FAILED")]
    assert not failed


def compare(call, tools, replace):
    text = call["args"]
    for old, new in replace.items():
        text = text.replace(old, new)
    output = tools.run(text.split(" "))
    if "SHUTDOWN_ALREADY" in output:  # a command that can be run once in a process
        output = tools.run(text.split(" "))
    for old, new in replace.items():
        output = output.replace(new, old)
    ours, java = shape(output), shape(call["output"])
    name = call["name"]
    if ours == java:
        TABLE[name] = "equal"
    elif name in DIFFERS:
        TABLE[name] = DIFFERS[name]
    else:
        TABLE[name] = f"FAILED: +{sorted(ours - java)[:4]} -{sorted(java - ours)[:4]}"


def show():
    width = max(map(len, TABLE))
    for name, verdict in TABLE.items():
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
    (re.compile(r"(=|-)+={5,}"), "=="),
    (re.compile(r"\s+"), " "),
)
VALUE = re.compile(r"^([\w.%/@$-]+?)\s*[:=]\s")
ELSEWHERE = re.compile(r"java(49|55)|^TOOLS_CONSUMER|ListT|^#.*Total:|RMQ_SYS_TRANS")
"""Topics and groups of other recordings, and of mqadmin itself."""

ERROR = re.compile(r"CODE: (\d+)")


def shape(output):
    """Return what of an output must be the same: lines without what may vary."""
    errors = set(ERROR.findall(output))
    if errors:
        return {f"error {code}" for code in errors}
    found = set()
    for line in output.splitlines():
        if not line.strip() or line.startswith("\tat ") or ELSEWHERE.search(line):
            continue
        match = VALUE.match(line)
        text = f"{match[1]}:" if match else line
        for pattern, name in MASKS:
            text = pattern.sub(name, text)
        found.add(text.strip())
    return found
