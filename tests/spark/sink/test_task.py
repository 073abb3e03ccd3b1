"""Tasks of the sink against a broker, without Spark."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from rmq._fastpath.bytes.hashing import java_hash
from rmq.client.admin import AdminClient
from rmq.core.errors import ConfigError
from rmq.testing import BrokerThread
from rmq_spark.sink.frames import BadRow
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.sender import SendFailed
from rmq_spark.sink.task import sink_task, task_digits

MAP = pa.map_(pa.string(), pa.string())
STREAM = "query|7"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        running.create_topic("Orders", 4)
        yield running


@pytest.fixture
def topic(broker, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    broker.create_topic(name, 4)
    return name


SPARK_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    MAP: "map<string,string>",
    pa.list_(pa.string()): "array<string>",
    pa.timestamp("us", "UTC"): "timestamp",
}


@pytest.fixture
def write(broker):
    """Run a task over columns; the number of rows that were acknowledged."""

    def run(table, job=STREAM, partition=0, **given):
        sending = sink_task(
            SinkOptions({"nameServer": broker.name_server, **given}),
            [(field.name, SPARK_TYPES[field.type]) for field in table.schema],
        )
        return sending.write(table.to_batches(max_chunksize=1_000), job, partition)

    return run


def bodies(count):
    return [b"%06d" % i for i in range(count)]


def test_every_row_is_stored_once_with_its_key(broker, write, topic):
    table = pa.table(
        {
            "value": bodies(5_000),
            "key": [f"k{i}" for i in range(5_000)],
            "tags": [f"T{i % 3}" if i % 3 else None for i in range(5_000)],
        }
    )
    assert write(table, topic=topic, batchBytes="8k") == 5_000
    found = broker.messages(topic)
    assert Counter(each.body for each in found) == Counter(bodies(5_000))
    task = task_digits(f"{STREAM}|0").decode()
    for each in found:
        row = int(each.body)
        assert each.properties["UNIQ_KEY"] == f"{task}{row >> 16:08X}{row & 0xFFFF:04X}"
        assert each.properties["KEYS"] == f"k{row}"
        assert each.properties.get("TAGS") == (f"T{row % 3}" if row % 3 else None)
    assert min(Counter(each.queue_id for each in found).values()) > 500


def test_a_repeated_task_has_the_same_keys(broker, write, topic):
    table = pa.table({"body": bodies(10)})
    for partition in (0, 1, 0):
        write(table, topic=topic, partition=partition)
    keys = Counter(each.properties["UNIQ_KEY"] for each in broker.messages(topic))
    assert sorted(keys.values()) == [1] * 10 + [2] * 10


def test_a_key_is_found_in_the_index(broker, write, topic):
    write(pa.table({"body": bodies(3)}), topic=topic)
    key = task_digits(f"{STREAM}|0").decode() + "000000000002"
    fields = {
        "topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0,
        "endTimestamp": 2**63 - 1, "_UNIQUE_KEY_QUERY": "true", "indexType": "U",
    }  # fmt: skip
    with AdminClient([broker.name_server]) as admin:
        answer = admin.try_request(broker.address, 12, fields)
    assert answer.code == 0
    assert b"000002" in answer.body


def test_one_batch_to_many_topics_and_queues(broker, write):
    for name in ("Red", "Blue"):
        broker.create_topic(name, 3)
    count = 900
    table = pa.table(
        {
            "body": bodies(count),
            "topic": [("Red", "Blue")[i % 2] for i in range(count)],
            "queueId": pa.array(
                [i % 3 if i % 5 else None for i in range(count)], pa.int32()
            ),
            "brokerName": ["broker-test" if i % 7 else None for i in range(count)],
        }
    )
    assert write(table) == count
    for name in ("Red", "Blue"):
        for each in broker.messages(name):
            row = int(each.body)
            assert name == ("Red", "Blue")[row % 2]
            assert row % 5 == 0 or each.queue_id == row % 3


def test_rows_of_a_key_are_in_order_in_javas_queue(broker, write, topic):
    count = 2_000
    table = pa.table(
        {
            "body": bodies(count),
            "shardingKey": [f"account-{i % 17}" for i in range(count)],
        }
    )
    write(table, topic=topic, batchBytes="2k")
    by_queue = {}
    for each in broker.messages(topic):
        row = int(each.body)
        assert each.queue_id == abs(java_hash(f"account-{row % 17}")) % 4
        by_queue.setdefault(each.queue_id, []).append(row)
    assert sum(map(len, by_queue.values())) == count
    assert all(rows == sorted(rows) for rows in by_queue.values())


def test_messages_that_cannot_be_in_a_batch_go_alone(broker, write, topic):
    later = datetime.now(UTC) + timedelta(hours=1)
    table = pa.table(
        {
            "body": [b"plain", b"level", b"x" * 9_000, b"timed", b"flagged"],
            "delayTimeLevel": pa.array([None, 18, None, None, None], pa.int32()),
            "deliverTimestamp": pa.array(
                [None, None, None, later, None], pa.timestamp("us", "UTC")
            ),
            "flag": pa.array([None, None, None, None, -3], pa.int32()),
        }
    )
    assert write(table, topic=topic, compressThreshold="1k", batchBytes="4k") == 5
    found = {len(each.body): each for each in broker.messages(topic)}
    assert {b"plain", b"flagged"} < {each.body for each in found.values()}
    assert found[7].flag == -3
    (large,) = (each for each in found.values() if each.sys_flag & 1)
    assert len(large.body) < 1_000
    assert len(found) == 3, "delayed ones wait elsewhere"
    waiting = broker.messages("SCHEDULE_TOPIC_XXXX")
    assert b"level" in {each.body for each in waiting}


def test_properties_of_a_map_and_of_columns(broker, write, topic):
    table = pa.table(
        {
            "body": [b"a", b"b"],
            "properties": pa.array(
                [
                    [("colour", "red"), ("TAGS", "old"), ("UNIQ_KEY", "other")],
                    [("KEYS", "k1 k2"), ("empty", ""), ("WAIT", "true")],
                ],
                MAP,
            ),
            "tags": ["new", None],
            "keys": pa.array([None, ["a", "b"]], pa.list_(pa.string())),
            "msgId": [None, "0123"],
        }
    )
    write(table, topic=topic)
    a, b = sorted(broker.messages(topic), key=lambda each: each.body)
    key = task_digits(f"{STREAM}|0").decode() + 12 * "0"
    mine = {"colour", "TAGS", "KEYS", "UNIQ_KEY", "empty", "WAIT"}
    assert {n: v for n, v in a.properties.items() if n in mine} == {
        "colour": "red",
        "TAGS": "new",
        "UNIQ_KEY": key,
    }
    assert {n: v for n, v in b.properties.items() if n in mine} == {
        "KEYS": "a b",
        "UNIQ_KEY": "0123",
    }


BAD = {
    "null body": ({"body": None}, "its body is null or empty"),
    "separator": ({"tags": "a\x02b"}, "byte 1 or 2"),
    "topic": ({"topic": "no such/name"}, "illegal characters"),
    "no topic": ({"topic": None}, "blank"),
    "retry": ({"topic": "%RETRY%group"}, "is a system topic"),
    "system": ({"topic": "SCHEDULE_TOPIC_XXXX"}, "is a system topic"),
    "queue": ({"queueId": 70_000}, "no such queue"),
    "negative queue": ({"queueId": -1}, "no such queue"),
    "level": ({"delayTimeLevel": 19}, "not 1 to 18"),
    "reserved": ({"properties": [("TRAN_MSG", "true")]}, "brokers and clients use"),
    "long": ({"properties": [("a", "b" * 40_000)]}, "larger than 32,767"),
    "large": ({"body": b"x" * 2_001}, "maxMessageSize"),
}
COLUMNS = pa.schema(
    {
        "body": pa.binary(),
        "topic": pa.string(),
        "tags": pa.string(),
        "queueId": pa.int32(),
        "delayTimeLevel": pa.int32(),
        "properties": MAP,
    }
)


@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_fails_the_task_before_its_batch_is_sent(broker, write, case):
    change, reason = BAD[case]
    good = {"body": b"good", "topic": "Orders"}
    rows = [dict(good), {**good, "body": b"bad", **change}, dict(good)]
    table = pa.Table.from_pylist(rows, COLUMNS)
    before = len(broker.messages("Orders"))
    with pytest.raises(BadRow, match=f"row 1 of the task cannot be sent: .*{reason}"):
        write(table, maxMessageSize="2000")
    assert len(broker.messages("Orders")) == before
    assert write(table, maxMessageSize="2000", badRows="skip") == 2


def test_bad_rows_go_to_a_topic_with_their_reasons(broker, write, topic):
    broker.create_topic("Rejected")
    table = pa.table({"body": [b"good", b"x" * 30, None], "tags": [None, "\1", None]})
    assert write(table, topic=topic, badRows="topic:Rejected") == 3
    assert [each.body for each in broker.messages(topic)] == [b"good"]
    reasons = {
        each.body: each.properties["RMQ_SPARK_ERROR"]
        for each in broker.messages("Rejected")
    }
    assert "byte 1 or 2" in reasons[b"x" * 30]
    assert b"its body is null or empty" in reasons


def test_without_a_key_and_without_waiting(broker, write, topic):
    table = pa.table({"body": bodies(10)})
    assert write(table, topic=topic, dedupKey="none", ackPolicy="stored") == 10
    assert {len(each.body) for each in broker.messages(topic)} == {6}
    assert write(table.slice(0, 0), topic=topic) == 0


def test_a_topic_that_nobody_has(tmp_path):
    with BrokerThread(tmp_path, {"autoCreateTopicEnable": "false"}) as other:
        options = SinkOptions({"nameServer": other.name_server, "topic": "Nowhere"})
        sending = sink_task(options, [("body", "binary")])
        with pytest.raises(SendFailed, match=r"topic Nowhere: .*17 TOPIC_NOT_EXIST"):
            sending.write(pa.table({"body": [b"a"]}).to_batches(), "job", 0)


@pytest.mark.parametrize(
    ("fields", "given", "reason"),
    [
        ([("bdy", "binary")], {"topic": "T"}, "no column bdy .did you mean body"),
        ([("topic", "string")], {}, "no column body .or value. to send"),
        ([("body", "binary")], {}, "no topic is set"),
        ([("body", "int")], {"topic": "T"}, "body is int, the sink accepts string or"),
        ([("body", "binary"), ("value", "binary")], {"topic": "T"}, "occurs twice"),
        ([("body", "binary")], {"topc": "T"}, "no option topc; did you mean topic"),
        ([("body", "binary")], {"topic": "%RETRY%x"}, "is a system topic"),
        ([("body", "binary")], {"topic": "T", "badRows": "drop"}, "fail, skip or"),
        ([("body", "binary")], {"topic": "T", "maxInFlight": "9999"}, "at most 256"),
        ([("body", "binary")], {"topic": "T", "batchBytes": "1g"}, "at most"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_sent(fields, given, reason):
    with pytest.raises(ConfigError, match=reason):
        sink_task(SinkOptions({"nameServer": "127.0.0.1:1", **given}), fields)


def test_the_sink_needs_a_name_server():
    with pytest.raises(ConfigError, match="option nameServer"):
        SinkOptions({"topic": "T"})
    with pytest.raises(ConfigError, match="host:port; separate"):
        SinkOptions({"nameServer": "nowhere"})
