"""Java opens a store of 10,000 queues that rmq wrote, and reads every one of them."""

import json

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored

from . import wire
from .conftest import prepared
from .interchange import QUEUES, Line, java_side, rmq_side
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPICS = 2_500
"""Of four queues each."""

WRITTEN_ON = 100
"""Topics that Java writes on."""


@pytest.fixture(scope="module", autouse=True)
def servers():
    return prepared(JavaServers())


def make_topics(address):
    configs = [
        {
            "topicName": f"Many{number}", "readQueueNums": QUEUES,
            "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0, "order": False, "attributes": {},
        }
        for number in range(TOPICS)
    ]  # fmt: skip
    body = json.dumps({"topicConfigList": configs}).encode()
    answer = wire.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def send(line, topic, queue_id, body):
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue_id, "f": 0,
        "g": 1, "h": 0, "i": f"KEYS\x01{topic}-{queue_id}\x02", "j": 0, "k": "false",
        "m": "false",
    }  # fmt: skip
    answer = line.call(RequestCode.SEND_MESSAGE_V2, fields, body)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def bodies(line, topic, queue_id):
    """What one pull from the start of a queue brings."""
    fields = {
        "consumerGroup": "many", "topic": topic, "queueId": queue_id,
        "queueOffset": 0, "maxMsgNums": 32, "sysFlag": wire.BY_EXPRESSION,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
        "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    answer = line.call(RequestCode.PULL_MESSAGE, fields)
    assert answer.code == ResponseCode.SUCCESS, (topic, queue_id, answer.remark)
    return [record.body for record in decode_stored(answer.body)]


def assert_all(address, extra):
    """Every queue has its two messages, and one more of `extra` topics."""
    line = Line(address)
    try:
        for number in range(TOPICS):
            for queue_id in range(QUEUES):
                wanted = [b"%d %d %d" % (number, queue_id, n) for n in range(2)]
                if number < extra:
                    wanted.append(b"from Java")
                assert bodies(line, f"Many{number}", queue_id) == wanted
    finally:
        line.close()


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_java_reads_every_queue_of_ten_thousand(tmp_path, how):
    store = tmp_path / "store"
    with rmq_side(store, tmp_path / "home0") as side:
        make_topics(side.address)
        line = Line(side.address)
        for round_ in range(2):
            for number in range(TOPICS):
                for queue_id in range(QUEUES):
                    body = b"%d %d %d" % (number, queue_id, round_)
                    send(line, f"Many{number}", queue_id, body)
        line.close()
        if how == "killed":
            side.kill()
    with java_side(store, tmp_path / "home1") as side:
        assert_all(side.address, 0)
        line = Line(side.address)
        for number in range(WRITTEN_ON):
            for queue_id in range(QUEUES):
                send(line, f"Many{number}", queue_id, b"from Java")
        line.close()
    with rmq_side(store, tmp_path / "home2") as side:
        assert_all(side.address, WRITTEN_ON)
