"""Inner batches: Java's client against rmq, and a directory that changes hands."""

from functools import partial

import pytest

from rmq.protocol.batch import BatchItem, encode_batch
from rmq.protocol.codes import RequestCode
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving, send
from .interchange import java_side, rmq_side
from .processes import broker_arguments, serving
from .toolchains import Java, JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

TOPIC, QUEUES, COUNT = "Inner", 2, 60
BATCHES = "+queue.type=BatchCQ"


def test_java_s_client_sends_and_unwraps(tmp_path):
    client = prepared(Java())
    with serving(*broker_arguments(tmp_path / "store")) as server:
        wire.make_topic(server.address, TOPIC, QUEUES, BATCHES)
        with driving(
            client, tmp_path / "push", "push", server.namesrv, TOPIC, COUNT,
            "group=inner",
        ) as consumer:  # fmt: skip
            consumer.wait_ready()
            send(client, tmp_path / "send", server.namesrv, TOPIC, COUNT, mode="batch")
            consumer.wait_received(COUNT)
            assert sorted(consumer.numbers) == list(range(COUNT))
            places = [(r["queue"], r["offset"]) for r in consumer.of("received")]
            assert len(set(places)) == COUNT
            consumer.finish()
        records = wire.pull(server.address, TOPIC, queues=QUEUES)
        assert {record.sys_flag & 0xC0 for record in records} == {0xC0}
        assert sum(int(r.properties["INNER_NUM"]) for r in records) == COUNT
        wanted = server.address, "inner", TOPIC, QUEUES
        wait_until(lambda: wire.committed(*wanted) == COUNT, "all offsets committed")


def put(address, number):
    """Send an inner batch of some messages, and one message alone, to each queue."""
    items = [BatchItem(0, b"%d-%d" % (number, n), "") for n in range(number % 5 + 1)]
    for queue_id in range(QUEUES):
        fields = {
            "a": "PG", "b": TOPIC, "c": "TBW102", "d": 4, "e": queue_id, "f": 0,
            "g": 5, "h": 0, "i": f"UNIQ_KEY\x01K{number}-{queue_id}\x02", "j": 0,
            "k": "false", "m": "true",
        }  # fmt: skip
        answer = wire.call(address, 320, fields, encode_batch(items))
        assert answer.code == 0, answer.remark
        assert answer.ext_fields["batchUniqId"] == f"K{number}-{queue_id}"
        answer = wire.call(address, 310, fields | {"m": "false", "i": ""}, b"alone")
        assert answer.code == 0, answer.remark


def state(address):
    """Everything that a broker says of the topic."""
    found = {}
    for record in wire.pull(address, TOPIC, queues=QUEUES):
        where = record.queue_id, record.queue_offset
        found[where] = (
            record.physical_offset, record.sys_flag, record.body, record.properties
        )  # fmt: skip
    times = [0, 1 << 60]
    for queue_id in range(QUEUES):
        fields = {"topic": TOPIC, "queueId": queue_id}
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET):
            offset = wire.call(address, code, fields).ext_fields["offset"]
            found[queue_id, code] = offset
        for at_ms in times:
            fields["timestamp"] = at_ms
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            found[queue_id, at_ms] = wire.call(address, code, fields).ext_fields
    return found


def ends_of(address):
    """The end of each queue."""
    fields = ({"topic": TOPIC, "queueId": queue_id} for queue_id in range(QUEUES))
    answers = [wire.call(address, RequestCode.GET_MAX_OFFSET, each) for each in fields]
    return [int(answer.ext_fields["offset"]) for answer in answers]


def has_grown(address, before):
    """Whether thirty rounds of `put` are in every queue: batches of three on average,
    and a message alone."""
    return ends_of(address) == [end + 30 * 4 for end in before]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_directory_changes_hands(tmp_path, is_killed):
    prepared(JavaServers())
    before = None
    for number in range(4):
        side = rmq_side if number % 2 else java_side
        sizes = {"mapperFileSizeBatchConsumeQueue": 460}
        home = tmp_path / f"home{number}"
        with side(tmp_path / "store", home, **sizes) as running:
            if before is None:
                wire.make_topic(running.address, TOPIC, QUEUES, BATCHES)
            else:
                assert state(running.address) == before
            ends = ends_of(running.address)
            for each in range(30):
                put(running.address, number * 30 + each)
            wait_until(partial(has_grown, running.address, ends), "all is dispatched")
            before = state(running.address)
            if is_killed:
                running.kill()
