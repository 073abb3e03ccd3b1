"""Raw requests over a blocking socket, to see what a broker has without a client."""

import json
import socket
from collections.abc import Iterator
from typing import Any

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.records import StoredMessage, decode_stored

BY_HEARTBEAT, BY_EXPRESSION = 0, 4
"""`sysFlag` of a pull: filtered as the group subscribes, or as the pull says."""


def call(
    address: str,
    code: int,
    fields: dict[str, Any] | None = None,
    body: bytes = b"",
    *,
    timeout_s: float = 10,
) -> Command:
    """Ask one thing and hang up."""
    host, _, port = address.rpartition(":")
    texts = {name: str(value) for name, value in (fields or {}).items()}
    request = Command(code, texts, body, opaque=1, language="PYTHON", version=513)
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=timeout_s) as stream:
        stream.sendall(encode(request))
        while True:
            data = stream.recv(1 << 16)
            assert data, f"{address} closed the connection"
            for answer in decoder.feed(data):
                return answer


def make_topic(broker: str, topic: str, queues: int, attributes: str = "") -> None:
    fields = {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
        "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0, "order": "false", "attributes": attributes,
    }  # fmt: skip
    answer = call(broker, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def pop_handles(
    fields: dict[str, str], broker: str, topic: str, retry_topic: str
) -> Iterator[tuple[str, str, str, str]]:
    """Yield topic, queue, offset and handle of each message of an answer to a POP."""
    starts = {}
    for text in fields["startOffsetInfo"].split(";"):
        flag, queue_id, start = text.split(" ")
        starts[flag, queue_id] = start
    for text in fields["msgOffsetInfo"].split(";"):
        flag, queue_id, offsets = text.split(" ")
        for offset in offsets.split(","):
            handle = " ".join([
                starts[flag, queue_id], fields["popTime"], fields["invisibleTime"],
                fields["reviveQid"], flag, broker, queue_id, offset,
            ])  # fmt: skip
            yield (topic if flag == "0" else retry_topic), queue_id, offset, handle


def route(namesrv: str, topic: str) -> dict[str, Any] | None:
    """The route as the name server tells it to clients of today; None if unknown."""
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = call(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    return json.loads(answer.body) if answer.code == ResponseCode.SUCCESS else None


def members(broker: str, group: str) -> list[str]:
    answer = call(
        broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}
    )
    if answer.code != ResponseCode.SUCCESS:
        return []
    names: list[str] = json.loads(answer.body)["consumerIdList"]
    return names


def holds(broker: str, group: str, client_id: str, topic: str) -> bool:
    """Whether a consumer, asked through the broker, says that queue 0 is its own."""
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
    answer = call(broker, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
    return f'"queueId":0,"topic":"{topic}"'.encode() in answer.body


def committed(broker: str, group: str, topic: str, queues: int) -> int:
    """How far a group has come, summed over the queues."""
    total = 0
    for queue_id in range(queues):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
        answer = call(broker, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        if answer.code == ResponseCode.SUCCESS:
            total += int(answer.ext_fields["offset"])
    return total


def lock(broker: str, group: str, client_id: str, queues: list[dict[str, Any]]) -> Any:
    """Ask for queues; those that nobody else holds."""
    body = {"clientId": client_id, "consumerGroup": group, "mqSet": queues}
    answer = call(broker, RequestCode.LOCK_BATCH_MQ, {}, json.dumps(body).encode())
    return json.loads(answer.body)["lockOKMQSet"]


def pull(
    broker: str,
    topic: str,
    *,
    queues: int,
    group: str = "interop-raw",
    flag: int = BY_EXPRESSION,
    tags: str = "*",
) -> list[StoredMessage]:
    """Everything that the broker serves of a topic."""
    found = []
    for queue_id in range(queues):
        offset = 0
        while True:
            fields = {
                "consumerGroup": group, "topic": topic, "queueId": queue_id,
                "queueOffset": offset, "maxMsgNums": 32, "sysFlag": flag,
                "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": tags,
                "subVersion": 0, "expressionType": "TAG",
            }  # fmt: skip
            answer = call(broker, RequestCode.PULL_MESSAGE, fields)
            known = (
                ResponseCode.SUCCESS,
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            )
            assert answer.code in known, (answer.code, answer.remark)
            found += decode_stored(answer.body)
            next_offset = int(answer.ext_fields["nextBeginOffset"])
            if next_offset <= offset:
                break
            offset = next_offset
    return found
