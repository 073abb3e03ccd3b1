"""Lite topics: the same requests to Java's broker and to rmq; the answers are the same.

Codes, remarks, fields and bodies are compared, without times.  What differs is a named
set here, and in docs/clients/lite.md.
"""

import json
import re
import time

import pytest

from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.records import decode_stored

from . import wire
from .conftest import prepared
from .interchange import java_side, rmq_side
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

KEYS = {"enableLmq": "true", "enableMultiDispatch": "true", "brokerName": "broker-a"}
PARENT, PLAIN, GROUP, EXCLUSIVE = "Parent", "Plain", "lite-group", "exclusive-group"
TIMES = frozenset(
    {"popTime", "lastUpdateTimestamp", "lastAccessTime", "earliestUnconsumedTimestamp"}
    | {"lastTimestamp"}
)
SIZES = frozenset({"cqTableSize", "offsetTableSize", "eventMapSize", "orderInfoCount"})
"""Sizes of tables that Java and rmq keep in other ways."""


class Side:
    """One broker, and what it answered."""

    def __init__(self, address):
        self.address = address
        self.answers = []
        self.handles = {}

    def ask(self, what, code, fields=None, body=b""):
        answer = wire.call(self.address, code, fields or {}, body)
        fields = {
            name: "a time" if name in TIMES and text != "0" else text
            for name, text in answer.ext_fields.items()
            if code != Code.CHANGE_MESSAGE_INVISIBLETIME or name != "invisibleTime"
        }
        if answer.code == 0 and code == Code.POP_LITE_MESSAGE:
            body = [(each.body, self.keep(answer, each)) for each in
                    decode_stored(answer.body)]  # fmt: skip
        else:
            body = (
                without_times(fastjson.load_json(answer.body)) if answer.body else None
            )
        remark = re.sub(r"/?127.0.0.1:\d+", "an address", answer.remark or "")
        self.answers.append((what, answer.code, remark, fields, body))
        return answer

    def keep(self, answer, message):
        offset = message.properties["INNER_MULTI_QUEUE_OFFSET"]
        fields = answer.ext_fields
        self.handles[message.body] = message.properties["__LITE_TOPIC"], offset, (
            f"0 {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} 0 "
            f"broker-a 0 {offset}"
        )  # fmt: skip
        return offset

    def send(self, lite, body):
        fields = {
            "a": "PG", "b": PARENT, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5,
            "h": 0, "i": f"__LITE_TOPIC\x01{lite}\x02", "j": 0, "k": "false",
            "m": "false",
        }  # fmt: skip
        answer = wire.call(self.address, Code.SEND_MESSAGE_V2, fields, body)
        assert answer.code == 0, answer.remark

    def group(self, name, topic, **attributes):
        texts = {"lite.bind.topic": topic, **attributes} if topic else {}
        signed = {f"+{key}": text for key, text in texts.items()}
        body = json.dumps({"groupName": name, "attributes": signed}).encode()
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        self.ask(f"make group {name}", code, body=body)
        self.ask(f"show group {name}", Code.GET_SUBSCRIPTIONGROUP_CONFIG,
                 {"group": name})  # fmt: skip

    def subscribe(self, action, client, names, group=GROUP, **more):
        entry = {
            "action": action, "clientId": client, "group": group, "topic": PARENT,
            "liteTopicSet": names, "version": 1, **more,
        }  # fmt: skip
        body = json.dumps({"subscriptionSet": [entry]}).encode()
        self.ask(f"{action} {client} {names}", Code.LITE_SUBSCRIPTION_CTL, body=body)

    def pop(self, client, what="pop", **more):
        fields = {
            "clientId": client, "consumerGroup": GROUP, "topic": PARENT,
            "maxMsgNum": 32, "invisibleTime": 60_000, "pollTime": 0,
            "bornTime": now_ms(), **more,
        }  # fmt: skip
        return self.ask(what, Code.POP_LITE_MESSAGE, fields)

    def ack(self, body, what="ack", code=Code.ACK_MESSAGE, **more):
        lite, offset, handle = self.handles[body]
        fields = {
            "consumerGroup": GROUP, "topic": PARENT, "queueId": 0,
            "extraInfo": handle, "offset": offset, "liteTopic": lite, **more,
        }  # fmt: skip
        return self.ask(f"{what} {more}", code, fields)


def now_ms():
    return time.time_ns() // 1_000_000


def without_times(value):
    """Return an answer's document without times, with sets in order."""
    if isinstance(value, list):
        return sorted(map(without_times, value), key=str)
    if not isinstance(value, dict):
        return value
    return {
        name: "a time" if name in TIMES and each > 0 else without_times(each)
        for name, each in value.items()
        if name not in SIZES
    }


def converse(side):
    """Everything that clients, proxies and tools ask."""
    wire.make_topic(side.address, PARENT, 4, "+message.type=LITE")
    wire.make_topic(side.address, PLAIN, 4)
    side.group(GROUP, PARENT)
    side.group("unbound", "")
    side.group(EXCLUSIVE, PARENT, **{"lite.sub.model": "Exclusive"})
    side.pop("c1", "pop without anything")
    side.subscribe("PARTIAL_ADD", "c1", ["a", "b"])
    for number in range(3):
        side.send("a", b"a%d" % number)
    side.send("b", b"b0")
    tools(side)
    side.pop("c1", "pop two", maxMsgNum=2)
    side.pop("c1", "pop the rest")
    side.pop("c1", "pop what is hidden")
    side.ack(b"a0")
    side.ack(b"a0", "ack again")
    for more in (
        {"offset": 99}, {"queueId": 1}, {"queueId": 9}, {"topic": "No"},
        {"topic": PLAIN}, {"consumerGroup": "unbound"}, {"liteTopic": "none"},
        {"extraInfo": "0 1 1 1 0 broker-a 0 1"},
    ):  # fmt: skip
        side.ack(b"a1", **more)
    side.ack(b"a1")
    tools(side)
    side.pop("c1", "pop after acks")
    side.ack(b"b0", "change", Code.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=1,
             suspend="false")  # fmt: skip
    side.ack(b"a0", "late change", Code.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=1)
    side.ack(b"b0", "odd change", Code.CHANGE_MESSAGE_INVISIBLETIME, invisibleTime=1,
             offset=77)  # fmt: skip
    for more in (
        {"topic": "No"}, {"topic": PLAIN}, {"maxMsgNum": 33},
        {"consumerGroup": "unbound"},
    ):  # fmt: skip
        side.pop("c1", f"pop {more}", **more)
    side.ask("no body", Code.LITE_SUBSCRIPTION_CTL)
    side.ask("no entries", Code.LITE_SUBSCRIPTION_CTL, body=b"{}")
    side.subscribe("PARTIAL_ADD", "c1", ["c"], group="no group")
    side.subscribe("COMPLETE_ADD", "c1", ["b", "d"])
    tools(side)
    side.subscribe("PARTIAL_REMOVE", "c1", ["d"])
    side.subscribe("PARTIAL_ADD", "e1", ["x"], group=EXCLUSIVE)
    side.subscribe("PARTIAL_ADD", "e2", ["x"], group=EXCLUSIVE)
    tools(side)
    side.subscribe("COMPLETE_REMOVE", "c1", [])
    tools(side)


def tools(side):
    side.ask("broker", Code.GET_BROKER_LITE_INFO)
    for topic in PARENT, PLAIN, "No":
        side.ask(f"parent {topic}", Code.GET_PARENT_TOPIC_INFO, {"topic": topic})
        for lite in "a", "x", "none":
            fields = {"parentTopic": topic, "liteTopic": lite}
            side.ask(f"lite {fields}", Code.GET_LITE_TOPIC_INFO, fields)
        for group in GROUP, "unbound":
            fields = {"parentTopic": topic, "group": group, "clientId": "c1"}
            side.ask(f"client {fields}", Code.GET_LITE_CLIENT_INFO, fields)
    for group in GROUP, "unbound":
        for lite in "", "a", "none":
            fields = {"group": group, "topK": 5} | ({"liteTopic": lite} if lite else {})
            side.ask(f"group {fields}", Code.GET_LITE_GROUP_INFO, fields)
    for group in GROUP, "unbound":
        for client in "", "no client":
            fields = {"group": group} | ({"clientId": client} if client else {})
            side.ask(f"dispatch {fields}", Code.TRIGGER_LITE_DISPATCH, fields)


def test_the_answers_are_those_of_java(tmp_path):
    prepared(JavaServers())
    sides = []
    for kind, name in (java_side, "java"), (rmq_side, "rmq"):
        folder = tmp_path / name
        with kind(folder / "store", folder / "home", **KEYS) as running:
            side = Side(running.address)
            converse(side)
            sides.append(side)
    java, ours = sides
    pairs = zip(java.answers, ours.answers, strict=True)
    differences = [(theirs, mine) for theirs, mine in pairs if theirs != mine]
    for theirs, mine in differences:
        print("Java", theirs, "\nrmq ", mine, "\n")
    assert not differences
