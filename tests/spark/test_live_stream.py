"""Live topics against a broker, called in Spark's order without a Spark."""

import json
import pickle

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rmq.client.admin import AdminClient
from rmq.core.errors import ConfigError, RmqError
from rmq.testing import BrokerThread
from rmq_spark.live.settings import live_read_settings, parse_subscription
from rmq_spark.live.source import LiveReader, LiveStreamReader
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.schema import columns_of
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task

pa = pytest.importorskip("pyarrow")
BROKER = "broker-test"
SETTINGS = {"enablePropertyFilter": "true", "mappedFileSizeCommitLog": str(4 << 20)}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        yield running


@pytest.fixture
def topic(broker, request):
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    broker.create_topic(name, 4)
    return name


@pytest.fixture
def fill(broker, topic):
    """Send rows first to last; their bodies are their numbers."""

    def send(first, last, topic=topic):
        options = {
            "nameServer": broker.name_server,
            "topic": topic,
            "batchBytes": "300",
        }
        sending = sink_task(
            SinkOptions(options), [("body", "binary"), ("tags", "string")]
        )
        table = pa.table(
            {
                "body": [b"%d" % n for n in range(first, last)],
                "tags": [f"T{n % 3}" for n in range(first, last)],
            }
        )
        sending.write(table.to_batches(), "job", 0)

    return send


@pytest.fixture
def reader_of(broker, topic):
    made = []

    def make(kind=LiveStreamReader, **given):
        if not {"subscribePattern", "assign"} & given.keys():
            given.setdefault("subscribe", topic)
        options = Options(
            {"nameServer": broker.name_server, "startingOffsets": "earliest", **given}
        )
        made.append(kind(options, live_read_settings(options, columns_of(options))))
        return made[-1]

    yield make
    for reader in made:
        if isinstance(reader, LiveStreamReader):
            reader.stop()


def numbers(reader, parts):
    worker = pickle.loads(pickle.dumps(reader))
    found = []
    for part in pickle.loads(pickle.dumps(parts)):
        for batch in worker.read(part):
            batch.validate(full=True)
            found += [int(body) for body in batch.column("body").to_pylist()]
    return found


def run(reader, start, limit=None):
    """Micro-batches until nothing is new, as Spark asks for them."""
    batches = []
    while True:
        end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        if end == start:
            return batches, start
        batches.append(numbers(reader, reader.partitions(start, end)))
        start = end


def test_a_batch_reads_everything_once(fill, reader_of):
    fill(0, 3_000)
    reader = reader_of(LiveReader, rowsPerPartition="700")
    parts = reader.partitions()
    assert len(parts) == 5
    assert sorted(numbers(reader, parts)) == list(range(3_000))


def test_all_columns(fill, reader_of, topic):
    fill(0, 5)
    reader = reader_of(LiveReader)
    rows = [
        r for p in reader.partitions() for b in reader.read(p) for r in b.to_pylist()
    ]
    assert {row["brokerName"] for row in rows} == {BROKER}
    assert {row["topic"] for row in rows} == {topic}
    assert {row["tags"] for row in rows} == {"T0", "T1", "T2"}
    assert all(row["storeSize"] > 91 and row["physicalOffset"] >= 0 for row in rows)


@pytest.mark.parametrize(
    "given", [{}, {"maxOffsetsPerTrigger": "333"}, {"maxOffsetsPerTrigger": "0"}]
)
def test_available_now_reads_what_is_there_now(fill, reader_of, given):
    fill(0, 2_000)
    reader = reader_of(**given)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    fill(2_000, 2_100)
    batches, end = run(reader, start)
    assert sorted(n for batch in batches for n in batch) == list(range(2_000))
    assert (len(batches) > 5) == (given == {"maxOffsetsPerTrigger": "333"})
    again, _ = run(reader_of(), end)
    assert sorted(n for batch in again for n in batch) == list(range(2_000, 2_100))


def test_a_stream_starts_at_the_end_unless_it_is_told(fill, reader_of):
    fill(0, 100)
    reader = reader_of(startingOffsets="latest")
    start = reader.initialOffset()
    fill(100, 150)
    batches, _ = run(reader, start, ReadAllAvailable())
    assert sorted(*batches) == list(range(100, 150))


def test_new_queues_and_new_topics_start_at_their_beginning(broker, fill, reader_of):
    broker.create_topic("grows-1", 1)
    reader = reader_of(subscribePattern="grows-.*")
    fill(0, 100, "grows-1")
    batches, start = run(reader, reader.initialOffset())
    assert sorted(*batches) == list(range(100))
    broker.create_topic("grows-1", 3)
    broker.create_topic("grows-2", 2)
    fill(100, 400, "grows-1")
    fill(400, 500, "grows-2")
    reader.client.forget_routes()
    batches, end = run(reader, start)
    assert sorted(*batches) == list(range(100, 500))
    assert len(end["grows-1"][BROKER]) == 3


def test_a_topic_that_goes_away_keeps_its_position(broker, fill, topic, reader_of):
    fill(0, 50)
    reader = reader_of()
    _, start = run(reader, reader.initialOffset())
    with AdminClient([broker.name_server]) as admin:
        admin.request(broker.address, 215, {"topic": topic})
        admin.request_name_server(216, {"topic": topic})
    reader.client.forget_routes()
    assert reader.latestOffset(start, ReadMaxRows(10)) == start


def recreate(broker, topic):
    """Delete a topic everywhere, and create it again."""
    with AdminClient([broker.name_server]) as admin:
        admin.request(broker.address, 215, {"topic": topic})
        admin.request_name_server(216, {"topic": topic})
    broker.create_topic(topic, 4)


@pytest.mark.parametrize("count", [10, 50, 70])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_topic_that_was_created_again_is_read_from_its_first_message(
    broker, fill, topic, reader_of, count, is_restarted
):
    """With fewer, as many, and more messages than were read before."""
    reader = reader_of(failOnDataLoss="false")
    strict = reader_of()
    fill(0, 50)
    batches, start = run(reader, reader.initialOffset())
    assert sorted(*batches) == list(range(50))
    recreate(broker, topic)
    fill(100, 100 + count)
    if count != 50:  # the same number of messages is noticed with the next one
        with pytest.raises(LostData, match="was deleted and created again"):
            strict.latestOffset(start, ReadMaxRows(1_000))
    if is_restarted:
        reader = reader_of(failOnDataLoss="false")
        start = json.loads(json.dumps(start))
    batches, end = run(reader, start)
    if count == 50:
        assert not batches
    fill(200, 260)
    later, end = run(reader, end, ReadMaxRows(30))
    found = sorted(n for batch in batches + later for n in batch)
    assert found == [*range(100, 100 + count), *range(200, 260)]
    assert run(reader, end) == ([], end)


def test_a_batch_of_a_topic_that_was_created_again_is_the_same_after_a_kill(
    broker, fill, topic, reader_of
):
    fill(0, 50)
    reader = reader_of(failOnDataLoss="false")
    _, start = run(reader, reader.initialOffset())
    recreate(broker, topic)
    fill(100, 170)
    end = reader.latestOffset(start, ReadMaxRows(1_000))
    fill(170, 200)
    again = reader_of(failOnDataLoss="false")  # Spark repeats the batch it has planned
    parts = again.partitions(start, json.loads(json.dumps(end)))
    assert sorted(numbers(again, parts)) == list(range(100, 170))


def test_a_checkpoint_without_log_offsets_continues(fill, topic, reader_of):
    """As written before the places had them."""
    fill(0, 50)
    reader = reader_of()
    _, end = run(reader, reader.initialOffset())
    places = end[topic][BROKER]
    old = {topic: {BROKER: {number: place[0] for number, place in places.items()}}}
    fill(50, 90)
    batches, end = run(reader, old)
    assert sorted(*batches) == list(range(50, 90))
    assert all(len(place) == 2 for place in end[topic][BROKER].values())


def test_a_position_that_is_not_there(fill, topic, reader_of):
    fill(0, 50)
    beyond = {topic: {BROKER: {"0": 1_000}}}
    with pytest.raises(LostData, match="position 1000 is after the end"):
        reader_of().latestOffset(beyond, ReadMaxRows(1_000))
    reader = reader_of(failOnDataLoss="false")
    batches, _ = run(reader, beyond)
    assert sorted(*batches) == list(range(50))


def test_progress_is_shown_for_the_group(broker, fill, topic, reader_of):
    fill(0, 200)
    reader = reader_of(consumerGroup="spark-progress")
    _, end = run(reader, reader.initialOffset(), ReadMaxRows(50))
    with AdminClient([broker.name_server]) as admin:
        for queue in admin.queues(topic):
            shown = admin.offset(14, topic, queue, consumerGroup="spark-progress")
            assert shown == end[topic][BROKER][str(queue.queue_id)][0]


def test_tags_and_sql(fill, reader_of):
    fill(0, 300)
    wanted = [n for n in range(300) if n % 3 != 2]
    for expression in ("T0 || T1", "TAGS IN ('T0', 'T1')"):
        reader = reader_of(LiveReader, subExpression=expression)
        assert sorted(numbers(reader, reader.partitions())) == wanted


def test_starts_and_ends(broker, fill, topic, reader_of):
    fill(0, 40)
    first = {topic: {BROKER: {"0": 2, "1": -1, "2": -2}}}
    last = {topic: {BROKER: {"0": 3, "3": 1}}}
    reader = reader_of(
        LiveReader, startingOffsets=json.dumps(first), endingOffsets=json.dumps(last)
    )
    ranges = {
        part.queue.queue_id: (part.start, part.end)
        for each in reader.partitions()
        for part in each.bundle.ranges
    }
    end = broker.messages(topic)
    assert ranges[0] == (2, 3)
    assert 1 not in ranges
    assert ranges[2] == (0, sum(m.queue_id == 2 for m in end))
    assert ranges[3] == (0, 1)


def test_times(broker, fill, topic, reader_of):
    fill(0, 40)
    now_ms = max(m.store_timestamp for m in broker.messages(topic))
    everything = reader_of(LiveReader, startingTimestamp="0")
    assert len(numbers(everything, everything.partitions())) == 40
    later = {"startingTimestamp": str(now_ms + 60_000)}
    with pytest.raises(RmqError, match=r"no message of .* or later"):
        reader_of(LiveReader, **later).partitions()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reader_of(LiveReader, **later, **strategy).partitions() == []
    times = {topic: {BROKER: {"0": now_ms + 60_000}}}
    reader = reader_of(
        LiveReader, startingOffsetsByTimestamp=json.dumps(times), **strategy
    )
    queues = {r.queue.queue_id for p in reader.partitions() for r in p.bundle.ranges}
    assert queues == {1, 2, 3}


def test_what_is_not_there_is_said(reader_of, topic):
    with pytest.raises(RmqError, match="no broker has a readable queue of topic Nope"):
        reader_of(LiveReader, subscribe=f"{topic},Nope").partitions()
    assign = {"assign": json.dumps({topic: {BROKER: [0, 9]}})}
    with pytest.raises(RmqError, match=r"queue 9 of topic .*does not exist"):
        reader_of(LiveReader, **assign).partitions()
    start = json.dumps({topic: {BROKER: {"9": 5}}})
    with pytest.raises(ConfigError, match="startingOffsets: queue 9"):
        reader_of(LiveReader, startingOffsets=start).partitions()
    far = json.dumps({topic: {BROKER: {"0": 5}}})
    with pytest.raises(LostData, match="position 5 is after the end 0"):
        reader_of(LiveReader, startingOffsets=far).partitions()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*", ("TAG", "*", None)),
        (" a||b ", ("TAG", "a || b", {"a", "b"})),
        ("colour = 'red'", ("SQL92", "colour = 'red'", None)),
        ("a > 3 AND b IS NOT NULL", ("SQL92", "a > 3 AND b IS NOT NULL", None)),
    ],
)
def test_subscriptions(text, expected):
    assert parse_subscription(text) == expected


def test_a_broker_that_is_away_keeps_its_positions(tmp_path):
    with BrokerThread(tmp_path) as running:
        running.create_topic("T", 2)
        running.send("T", b"1")
        given = {
            "nameServer": running.name_server, "subscribe": "T",
            "startingOffsets": "earliest", "pullTimeoutMs": "200",
            "fetchOffset.numRetries": "1",
        }  # fmt: skip
        options = Options(given)
        reader = LiveStreamReader(
            options, live_read_settings(options, columns_of(options))
        )
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadMaxRows(10))
        assert end != start
    assert reader.latestOffset(end, ReadMaxRows(10)) == end
    reader.stop()
