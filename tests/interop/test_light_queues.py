"""Light message queues: a directory that changes hands between Java and rmq."""

import pytest

from rmq.protocol.codes import RequestCode
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .interchange import java_side, rmq_side
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, GROUP = "Parent", "%LMQ%group"
LIGHT = [*(f"%LMQ%{name}" for name in "abc"), f"%LMQ%${TOPIC}$session-1"]
KEYS = {"enableLmq": "true", "enableMultiDispatch": "true"}


def put(address, number):
    """Send a message that some of the queues get."""
    names = [name for place, name in enumerate(LIGHT) if number % (place + 1) == 0]
    fields = {
        "a": "PG", "b": TOPIC, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5, "h": 0,
        "i": f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02", "j": 0, "k": "false",
        "m": "false",
    }  # fmt: skip
    answer = wire.call(address, 310, fields, b"%d" % number)
    assert answer.code == 0, answer.remark


def ends(address):
    fields = ({"topic": topic, "queueId": 0} for topic in LIGHT)
    answers = [wire.call(address, RequestCode.GET_MAX_OFFSET, each) for each in fields]
    return [int(answer.ext_fields["offset"]) for answer in answers]


def served(address):
    """What each light queue has, and how far its group is."""
    found = {}
    for topic in LIGHT:
        records = wire.pull(address, topic, queues=1, group=GROUP)
        found[topic] = [
            (r.physical_offset, r.body, r.properties["INNER_MULTI_QUEUE_OFFSET"])
            for r in records
        ]
        fields = {"consumerGroup": GROUP, "topic": topic, "queueId": 0}
        answer = wire.call(address, RequestCode.QUERY_CONSUMER_OFFSET, fields)
        found[topic, "committed"] = answer.ext_fields["offset"]
    return found


def commit(address, offset):
    for topic in LIGHT:
        fields = {
            "consumerGroup": GROUP, "topic": topic, "queueId": 0,
            "commitOffset": offset,
        }  # fmt: skip
        answer = wire.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        assert answer.code == 0, answer.remark


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_directory_changes_hands(tmp_path, is_killed):
    prepared(JavaServers())
    before, count = None, 0
    for number in range(4):
        side = rmq_side if number % 2 else java_side
        with side(tmp_path / "store", tmp_path / f"home{number}", **KEYS) as running:
            address = running.address
            if before is None:
                wire.make_topic(address, TOPIC, 1)
            else:
                found = served(address)
                for topic in LIGHT:
                    assert found[topic] == before[topic]
                    if not is_killed:  # offsets are saved every few seconds
                        where = topic, "committed"
                        assert found[where] == before[where]
            for _ in range(60):
                put(address, count)
                count += 1
            wanted = [-(-count // (place + 1)) for place in range(len(LIGHT))]
            wait_until(lambda a=address, w=wanted: ends(a) == w, "all is dispatched")
            commit(address, number + 1)
            before = served(address)
            if is_killed:
                running.kill()
