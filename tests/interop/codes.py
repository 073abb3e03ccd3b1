"""Requests by code to a broker: of unknown names, of empty and filled queues.

A probe is a request with the topic and the group of a *place*. Its outcome has the
answer without times and addresses, and whether the request created the topic or group.
"""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from rmq.core.errors import RemoteProtocolError
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.records import decode_stored

from . import wire

MESSAGES, COMMITTED = 5, 2
ID = re.compile(r"[0-9A-F]{32,64}")
CLOCK = re.compile(r"20\d\d-\d\d-\d\d#[0-9:]+")
MEASURED = frozenset({"topicPutTps", "consumeTps", "physicOffset", "physicSize"}) | {
    "dataVersion", "mappingDataVersion", "delayTime", "statsDay", "statsHour",
    "statsMinute",
}  # fmt: skip
"""Members of bodies that depend on the moment, or on the size of records."""

TIME = re.compile(r"(?<![0-9A-Za-z])1[6-9]\d{11}(?!\d)")
ADDRESS = re.compile(r"/?(?:\d+\.\d+\.\d+\.\d+|\[[^]]*\]):\d+")
RECORDS = frozenset(
    {Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_MESSAGE, Code.PEEK_MESSAGE}
    | {Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID}
)


class Place(NamedTuple):
    """A topic and a group of one kind."""

    name: str
    topic: str
    group: str


class Probe(NamedTuple):
    """One request."""

    name: str
    code: int
    fields: dict[str, Any]
    body: bytes = b""


class Outcome(NamedTuple):
    """An answer, in texts that two brokers have in common."""

    code: int
    remark: str
    fields: dict[str, str]
    body: Any
    created: tuple[str, ...]


PLACES = ("unknown", "unknown-topic", "unknown-group", "empty", "batch", "filled")
KNOWN = PLACES[3:]


def prepare(address: str) -> None:
    """Create the topics and groups of the places, and send messages."""
    for topic in ("empty-topic", "spare-topic"):
        wire.make_topic(address, topic, 2)
    wire.make_topic(address, "batch-topic", 2, "+queue.type=BatchCQ")
    wire.make_topic(address, "filled-topic", 2)
    for place in (*KNOWN, "spare"):
        body = json.dumps({"groupName": f"{place}-group"}).encode()
        code = Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert wire.call(address, code, body=body).code == ResponseCode.SUCCESS
    for number in range(MESSAGES):
        answer = wire.call(address, *send("filled-topic", f"key-{number}"))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    wire.call(
        address,
        Code.UPDATE_CONSUMER_OFFSET,
        {
            "topic": "filled-topic", "queueId": 0, "consumerGroup": "filled-group",
            "commitOffset": COMMITTED,
        },
    )  # fmt: skip
    deadline = time.monotonic() + 10
    while not _is_indexed(address):
        assert time.monotonic() < deadline, "no index"
        time.sleep(0.1)


def _is_indexed(address: str) -> bool:
    place = Place("", "filled-topic", "")
    probe = next(each for each in probes_of(place) if each.name == "query")
    answer = wire.call(address, probe.code, probe.fields)
    return answer.code == ResponseCode.SUCCESS


def send(topic: str, key: str = "") -> tuple[int, dict[str, Any], bytes]:
    fields = {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0,
        "g": time.time_ns() // 1_000_000, "h": 0, "j": 0, "k": "false", "m": "false",
        "i": f"KEYS\x01{key}\x02" if key else "",
    }  # fmt: skip
    return Code.SEND_MESSAGE_V2, fields, b"hello"


def place_of(name: str, probe: str) -> Place:
    """Return a place; each probe of unknown names has names of its own."""
    if name in KNOWN:
        return Place(name, f"{name}-topic", f"{name}-group")
    suffix = re.sub("[^a-zA-Z0-9]+", "-", probe)
    topic, group = f"{name}-no-topic-{suffix}", f"{name}-no-group-{suffix}"
    if name == "unknown-topic":
        group = "spare-group"
    if name == "unknown-group":
        topic = "spare-topic"
    return Place(name, topic, group)


def probe_names() -> list[str]:
    return [each.name for each in probes_of(Place("", "", ""))]


def probe_of(place: str, name: str) -> Probe:
    found = probes_of(place_of(place, name))
    return next(each for each in found if each.name == name)


def probes_of(place: Place) -> Iterator[Probe]:
    """Yield the probes of one place; those that change something are last."""
    _, topic, group = place
    at = {"topic": topic, "queueId": 0}
    of = {"consumerGroup": group, **at}
    pull = {
        **of, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": wire.BY_EXPRESSION,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
        "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    pop = {
        **of, "maxMsgNums": 32, "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0,
        "initMode": 0, "order": "false",
    }  # fmt: skip
    fields = {**at, "index": 0, "count": 10, "consumerGroup": group}
    yield Probe("queue", Code.QUERY_CONSUME_QUEUE, fields)
    yield Probe("maximum", Code.GET_MAX_OFFSET, at)
    yield Probe("minimum", Code.GET_MIN_OFFSET, at)
    yield Probe("minimum of queue 9", Code.GET_MIN_OFFSET, {**at, "queueId": 9})
    yield Probe("maximum of queue 9", Code.GET_MAX_OFFSET, {**at, "queueId": 9})
    for boundary in ("LOWER", "UPPER"):
        for name, ms in (("past", 1), ("future", 4_000_000_000_000)):
            fields = {**at, "timestamp": ms, "boundaryType": boundary}
            code = Code.SEARCH_OFFSET_BY_TIMESTAMP
            yield Probe(f"search {name} {boundary}", code, fields)
    yield Probe("earliest", Code.GET_EARLIEST_MSG_STORETIME, at)
    yield Probe("topic statistics", Code.GET_TOPIC_STATS_INFO, {"topic": topic})
    yield Probe("topic configuration", Code.GET_TOPIC_CONFIG, {"topic": topic})
    yield Probe("offset", Code.QUERY_CONSUMER_OFFSET, of)
    fields = {**of, "setZeroIfNotFound": "false"}
    yield Probe("offset, not zero", Code.QUERY_CONSUMER_OFFSET, fields)
    named = {"topic": topic, "consumerGroup": group}
    yield Probe("progress", Code.GET_CONSUME_STATS, named)
    fields = {"consumerGroup": group}
    yield Probe("progress of all", Code.GET_CONSUME_STATS, fields)
    yield Probe(
        "time span", Code.QUERY_CONSUME_TIME_SPAN, {"topic": topic, "group": group}
    )
    yield Probe("groups of topic", Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    yield Probe("topics of group", Code.QUERY_TOPICS_BY_CONSUMER, {"group": group})
    fields = {"group": group, "topic": topic}
    yield Probe("subscription", Code.QUERY_SUBSCRIPTION_BY_CONSUMER, fields)
    fields = {"compareGroup": group, "topic": topic, "filterGroups": ""}
    yield Probe("correction", Code.QUERY_CORRECTION_OFFSET, fields)
    fields = {
        "topic": topic, "key": "key-1", "maxNum": 32, "beginTimestamp": 0,
        "endTimestamp": 4_000_000_000_000,
    }  # fmt: skip
    yield Probe("query", Code.QUERY_MESSAGE, fields)
    fields = {"consumerGroup": group}
    yield Probe("members", Code.GET_CONSUMER_LIST_BY_GROUP, fields)
    yield Probe("connections", Code.GET_CONSUMER_CONNECTION_LIST, fields)
    fields = {"producerGroup": group}
    yield Probe("producers", Code.GET_PRODUCER_CONNECTION_LIST, fields)
    for name, key in (
        ("TOPIC_PUT_NUMS", topic), ("TOPIC_PUT_SIZE", topic),
        ("GROUP_GET_NUMS", f"{topic}@{group}"), ("GROUP_GET_SIZE", f"{topic}@{group}"),
        ("SNDBCK_PUT_NUMS", f"{topic}@{group}"),
    ):  # fmt: skip
        fields = {"statsName": name, "statsKey": key}
        yield Probe(name, Code.VIEW_BROKER_STATS_DATA, fields)
    body = {
        "topic": topic, "consumerGroup": group, "clientId": "client",
        "strategyName": "AVG", "messageModel": "CLUSTERING",
    }  # fmt: skip
    yield Probe("assignment", Code.QUERY_ASSIGNMENT, {}, json.dumps(body).encode())
    yield Probe("running info", Code.GET_CONSUMER_RUNNING_INFO,
                {"consumerGroup": group, "clientId": "client"})  # fmt: skip
    fields = {
        "consumerGroup": group, "clientId": "client", "topic": topic,
        "msgId": "7F00000100002A9F0000000000000000", "brokerName": "broker-test",
    }  # fmt: skip
    yield Probe("consume directly", Code.CONSUME_MESSAGE_DIRECTLY, fields)
    fields = {"topic": topic, "group": group, "clientAddr": ""}
    yield Probe("status", Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
    yield Probe("group settings", Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": group})
    fields = {"group": group, "topic": topic, "readable": "true"}
    yield Probe("forbidden", Code.UPDATE_AND_GET_GROUP_FORBIDDEN, fields)
    yield Probe("pull", Code.PULL_MESSAGE, pull)
    fields = {**pull, "queueOffset": 7}
    yield Probe("pull beyond", Code.PULL_MESSAGE, fields)
    yield Probe("pull of queue 1", Code.PULL_MESSAGE, {**pull, "queueId": 1})
    yield Probe("pull of queue 9", Code.PULL_MESSAGE, {**pull, "queueId": 9})
    yield Probe("lite pull", Code.LITE_PULL_MESSAGE, pull)
    yield Probe("pull, subscribed", Code.PULL_MESSAGE,
                {**pull, "sysFlag": wire.BY_HEARTBEAT})  # fmt: skip
    yield Probe("peek", Code.PEEK_MESSAGE, {**of, "maxMsgNums": 8})
    fields = {**of, "pollTime": 0, "bornTime": 0}
    yield Probe("notification", Code.NOTIFICATION, fields)
    yield Probe("polling", Code.POLLING_INFO, of)
    yield Probe("pop", Code.POP_MESSAGE, pop)
    fields = {
        **of, "offset": 0, "extraInfo": "0 1700000000000 60000 0 0 broker-test 0 0",
    }  # fmt: skip
    yield Probe("ack", Code.ACK_MESSAGE, fields)
    yield Probe("invisible", Code.CHANGE_MESSAGE_INVISIBLETIME,
                {**fields, "invisibleTime": 10_000})  # fmt: skip
    fields = {"offset": 0, "group": group, "delayLevel": 0, "originTopic": topic}
    yield Probe("send back", Code.CONSUMER_SEND_MSG_BACK, fields)
    queue = {"topic": topic, "brokerName": "broker-test", "queueId": 0}
    body = {"consumerGroup": group, "clientId": "client", "mqSet": [queue]}
    for name, code in (("lock", Code.LOCK_BATCH_MQ), ("unlock", Code.UNLOCK_BATCH_MQ)):
        yield Probe(name, code, {}, json.dumps(body).encode())
    fields = {
        "topic": topic, "group": group, "timestamp": -1, "isForce": "true",
        "offset": -1,
    }  # fmt: skip
    yield Probe("reset", Code.INVOKE_BROKER_TO_RESET_OFFSET, fields)
    body = {
        "topic": topic, "consumerGroup": group, "mode": "PULL", "popShareQueueNum": 0,
    }  # fmt: skip
    yield Probe("mode", Code.SET_MESSAGE_REQUEST_MODE, {}, json.dumps(body).encode())
    yield Probe(
        "commit", Code.UPDATE_CONSUMER_OFFSET, {**of, "commitOffset": COMMITTED}
    )
    fields = {"srcGroup": group, "destGroup": f"{group}-2", "topic": topic}
    yield Probe("clone", Code.CLONE_GROUP_OFFSET, fields)
    fields = {"clientID": "client", "consumerGroup": group, "producerGroup": group}
    yield Probe("unregister", Code.UNREGISTER_CLIENT, fields)
    yield Probe("heartbeat", Code.HEART_BEAT, {}, _heartbeat(topic, group))
    yield Probe("send", *send(topic))
    yield Probe("send to retry", *send(f"%RETRY%{group}"))
    yield Probe("send to dead letters", *send(f"%DLQ%{group}"))
    fields = {"groupName": group, "removeOffset": "false"}
    yield Probe("delete group", Code.DELETE_SUBSCRIPTIONGROUP, fields)
    yield Probe("delete topic", Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})


def _heartbeat(topic: str, group: str) -> bytes:
    subscription = {
        "topic": topic, "subString": "*", "tagsSet": [], "codeSet": [],
        "subVersion": 1, "expressionType": "TAG", "classFilterMode": False,
    }  # fmt: skip
    consumer = {
        "groupName": group, "consumeType": "CONSUME_PASSIVELY", "unitMode": False,
        "messageModel": "CLUSTERING", "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": "client", "consumerDataSet": [consumer], "producerDataSet": []}
    return json.dumps(body).encode()


def send_probe(address: str, place: str, name: str) -> Outcome:
    """Send one probe; return its outcome."""
    probe = probe_of(place, name)
    before = _known_names(address)
    try:
        answer = wire.call(address, probe.code, probe.fields, probe.body)
    except (AssertionError, OSError):
        answer = Command(-1, remark="no answer")
    created = tuple(sorted(_known_names(address) ^ before))
    return Outcome(
        answer.code,
        _mask_text(answer.remark or "").partition("\n")[0],
        {key: _mask_text(text) for key, text in sorted(answer.ext_fields.items())},
        _body_of(probe.code, answer),
        created,
    )


def _known_names(address: str) -> set[str]:
    topics = wire.call(address, Code.GET_ALL_TOPIC_CONFIG)
    groups = wire.call(address, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = fastjson.load_json(topics.body)["topicConfigTable"]
    names = {f"topic {name}" for name in table}
    table = fastjson.load_json(groups.body)["subscriptionGroupTable"]
    return names | {f"group {name}" for name in table}


def _body_of(code: int, answer: Command) -> Any:
    if not answer.body:
        return None
    if code in RECORDS and answer.code == ResponseCode.SUCCESS:
        return [each.body.decode() for each in decode_stored(answer.body)]
    try:
        return _mask_value(fastjson.load_json(answer.body))
    except RemoteProtocolError:
        is_text = answer.body.isascii() and b"\0" not in answer.body
        text = answer.body.decode() if is_text else f"{len(answer.body)} bytes"
        return _mask_text(text)


def _mask_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _mask_text(str(name)): _mask_value(member)
            for name, member in value.items()
            if name not in MEASURED
        }
    if isinstance(value, list):
        return sorted((_mask_value(each) for each in value), key=str)
    if isinstance(value, str | int) and not isinstance(value, bool):
        text = _mask_text(str(value))
        return text if isinstance(value, str) or text == "*" else value
    return value


def _mask_text(text: str) -> str:
    for pattern in ID, CLOCK, TIME, ADDRESS:
        text = pattern.sub("*", text)
    return text


BROKER_CODES = (
    Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_TIMER_CHECK_POINT,
    Code.GET_TIMER_METRICS, Code.GET_BROKER_CONSUME_STATS, Code.GET_ALL_PRODUCER_INFO,
    Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.GET_COLD_DATA_FLOW_CTR_INFO,
    Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE, Code.GET_BROKER_LITE_INFO,
    Code.GET_BROKER_RUNTIME_INFO, Code.CLEAN_EXPIRED_CONSUMEQUEUE,
    Code.CLEAN_UNUSED_TOPIC, Code.DELETE_EXPIRED_COMMITLOG, Code.POP_ROLLBACK,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_TOPIC_CONFIG, Code.EXCHANGE_BROKER_HA_INFO,
)  # fmt: skip
"""Requests about the whole broker, without fields."""


CONTROLLER_CODES = (
    Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_ELECT_MASTER,
    Code.CONTROLLER_REGISTER_BROKER, Code.CONTROLLER_GET_REPLICA_INFO,
    Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
    Code.UPDATE_CONTROLLER_CONFIG, Code.GET_CONTROLLER_CONFIG, Code.CLEAN_BROKER_DATA,
    Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID,
)  # fmt: skip
"""Requests to a controller, which a broker refuses."""


def broker_probes() -> Iterator[Probe]:
    """Yield probes about the whole broker; those that change something are last."""
    yield from _filled_probes()
    known = {probe.code for probe in (*_filled_probes(), *probes_of(Place("", "", "")))}
    for code in Code:
        if code not in known:
            yield Probe(f"nothing: {code.name}", code, {})
    yield from _old_and_rare_probes()


def _old_and_rare_probes() -> Iterator[Probe]:
    """Yield probes with fields that few clients send."""
    long = {
        "producerGroup": "p", "topic": "no-such-topic", "defaultTopic": "none",
        "defaultTopicQueueNums": 4, "queueId": 0, "sysFlag": 0, "bornTimestamp": 1,
        "flag": 0, "properties": "", "reconsumeTimes": 0, "unitMode": "false",
    }  # fmt: skip
    yield Probe("send, long names", Code.SEND_MESSAGE, long, b"hello")
    short = send("no-such-topic")[1] | {"c": "none", "m": "true"}
    yield Probe("send a batch", Code.SEND_BATCH_MESSAGE, short, b"")
    ended = {
        "producerGroup": "p", "tranStateTableOffset": 7, "commitLogOffset": 7,
        "commitOrRollback": 8, "fromTransactionCheck": "false", "msgId": "A",
        "transactionId": "A",
    }  # fmt: skip
    yield Probe("end a transaction", Code.END_TRANSACTION, ended)
    yield Probe("view", Code.VIEW_MESSAGE_BY_ID, {"offset": 1 << 40})
    recall = {"producerGroup": "p", "topic": "no-such-topic", "recallHandle": "x"}
    yield Probe("recall", Code.RECALL_MESSAGE, recall)
    yield Probe(
        "master's flush", Code.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": 0}
    )
    body = json.dumps({"consumerGroup": "no-group", "acks": []}).encode()
    yield Probe("ack a batch", Code.BATCH_ACK_MESSAGE, {}, body)
    yield Probe("parent topic", Code.GET_PARENT_TOPIC_INFO, {"topic": "no-lite"})
    client = {"parentTopic": "no-lite", "group": "no-group", "clientId": "client"}
    yield Probe("lite client", Code.GET_LITE_CLIENT_INFO, client)
    trigger = {"group": "no-group", "clientId": "client"}
    yield Probe("trigger lite", Code.TRIGGER_LITE_DISPATCH, trigger)
    topic = {"topic": "no-such-topic"}
    yield Probe("half message", Code.RESUME_CHECK_HALF_MESSAGE, topic | {"msgId": "A"})


def _filled_probes() -> Iterator[Probe]:
    for code in BROKER_CODES:
        yield Probe(code.name, code, {})
    for code in CONTROLLER_CODES:
        yield Probe(code.name, code, {})
    user, subject = {"username": "nobody"}, {"subject": "User:nobody"}
    yield Probe("user", Code.AUTH_GET_USER, user)
    yield Probe("users", Code.AUTH_LIST_USER, {})
    yield Probe("policies", Code.AUTH_GET_ACL, subject)
    yield Probe("all policies", Code.AUTH_LIST_ACL, {})
    yield Probe("delete user", Code.AUTH_DELETE_USER, user)
    yield Probe("delete policies", Code.AUTH_DELETE_ACL, subject)
    yield Probe("update user", Code.AUTH_UPDATE_USER, user, b'{"password":"secret"}')
    policy = b'{"policies":[{"policyType":"CUSTOM","entries":[]}]}'
    yield Probe("create policy", Code.AUTH_CREATE_ACL, subject, policy)
    yield Probe("update policy", Code.AUTH_UPDATE_ACL, subject, policy)
    made = {"username": "made"}
    body = b'{"username":"made","password":"secret","userType":"Normal"}'
    yield Probe("create user without name", Code.AUTH_CREATE_USER, {}, body)
    yield Probe("create user", Code.AUTH_CREATE_USER, made, body)
    yield Probe("create user again", Code.AUTH_CREATE_USER, made, body)
    threshold = Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    yield Probe("cold threshold", threshold, {}, b"cold-group=1000\n")
    yield Probe("cold threshold, no number", threshold, {}, b"cold-group=many\n")
    yield Probe("cold threshold, no body", threshold, {})
    yield Probe("cold thresholds", Code.GET_COLD_DATA_FLOW_CTR_INFO, {})
    remove = Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    yield Probe("no cold threshold", remove, {}, b"cold-group")
    yield Probe("no cold threshold, no body", remove, {})
    for mode in ("0", "1", "7", "many"):
        fields = {"READ_AHEAD_MODE": mode}
        yield Probe(f"read ahead {mode}", Code.SET_COMMITLOG_READ_MODE, fields)
    yield Probe("read ahead", Code.SET_COMMITLOG_READ_MODE, {})
    lite = {"topic": "no-lite", "liteTopic": "a", "group": "no-group"}
    yield Probe("lite topic", Code.GET_LITE_TOPIC_INFO, {"parentTopic": "no-lite"})
    yield Probe("lite group", Code.GET_LITE_GROUP_INFO, lite)
    pop = {
        "clientId": "client", "consumerGroup": "no-group", "topic": "no-lite",
        "maxMsgNum": 8, "invisibleTime": 10_000, "pollTime": 0, "bornTime": 0,
    }  # fmt: skip
    yield Probe("lite pop", Code.POP_LITE_MESSAGE, pop)
    yield Probe("lite pop without fields", Code.POP_LITE_MESSAGE, {})
    code = Code.LITE_SUBSCRIPTION_CTL
    for action in ("PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE"):
        entry = {
            "action": action, "clientId": "client", "group": "no-group",
            "topic": "no-lite", "liteTopicSet": ["a"], "version": 1,
        }  # fmt: skip
        body = json.dumps({"subscriptionSet": [entry]}).encode()
        yield Probe(f"lite subscription {action}", code, {}, body)
    yield Probe("lite subscription, no entry", code, {}, b'{"subscriptionSet":[]}')
    yield Probe("lite subscription, no body", code, {})
    yield Probe("lite ack", Code.ACK_LITE_MESSAGE, lite)
    yield Probe("lite unsubscription", Code.NOTIFY_UNSUBSCRIBE_LITE, lite)


def collect_broker_outcomes(address: str) -> dict[str, Outcome]:
    """Ask a new broker about itself; return the outcomes by place and name."""
    found = {}
    for probe in broker_probes():
        try:
            answer = wire.call(
                address, probe.code, probe.fields, probe.body, timeout_s=4
            )
        except (AssertionError, OSError):
            answer = Command(-1, remark="no answer")
        fields = {k: _mask_text(v) for k, v in sorted(answer.ext_fields.items())}
        found[f"broker: {probe.name}"] = Outcome(
            answer.code,
            _mask_text(answer.remark or "").partition("\n")[0],
            fields,
            _body_of(probe.code, answer),
            (),
        )
    return found


def collect_outcomes(address: str) -> dict[str, Outcome]:
    """Send all probes; return the outcomes by place and name."""
    found = {}
    for place in PLACES:
        for name in probe_names():
            found[f"{place}: {name}"] = send_probe(address, place, name)
    return found
