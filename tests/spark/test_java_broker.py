"""The sink and live topics of Spark, without Spark, against Java's broker 5.5.0."""

from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pytest

from rmq.outgoing.identity import Identity
from rmq_spark.live.client import ClientSettings, LiveClient
from rmq_spark.live.plan import Bounds, QueueRange, plan_bundles
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import live_read_settings
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.schema import columns_of
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task, task_digits
from tests.interop import wire
from tests.interop.test_name_servers import NAME, java_broker_with_rmq_name_server
from tests.interop.toolchains import JavaServers
from tests.waiting import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
COUNT = 20_000
QUEUES = 4


@pytest.fixture(scope="module")
def java(tmp_path_factory):
    """The addresses of a name server and of Java's broker."""
    missing = JavaServers.missing()
    if missing:
        pytest.skip(f"not run: {missing}")
    with java_broker_with_rmq_name_server(tmp_path_factory.mktemp("java")) as found:
        yield found


@pytest.fixture
def topic(java, request):
    namesrv, broker = java
    name = request.node.name[:100]
    wire.make_topic(broker, name, QUEUES)
    wait_until(lambda: wire.route(namesrv, name) is not None, "route")
    return name


def write(namesrv, topic, table, **given):
    kinds = {"delayTimeLevel": "int", "queueId": "int"}
    sending = sink_task(
        SinkOptions({"nameServer": namesrv, "topic": topic, **given}),
        [(name, kinds.get(name, "string")) for name in table.column_names],
    )
    return sending.write(table.to_batches(max_chunksize=5_000), "job", 0)


def rows():
    return pa.table(
        {
            "body": [f"{n:06d}" for n in range(COUNT)],
            "keys": [f"k{n}" for n in range(COUNT)],
            "tags": [f"T{n % 3}" for n in range(COUNT)],
        }
    )


def bounds_of(task):
    client = LiveClient(task.pulls.live)
    try:
        return client.find_bounds(fails=True)
    finally:
        client.close()


def read(namesrv, topic, count, move=None, **given):
    """All rows of a topic with `count` messages; `move` may change the ranges.

    Java's broker shows messages in its queues a moment after it has acknowledged them.
    """
    options = Options({"nameServer": namesrv, "subscribe": topic, **given})
    task = live_read_settings(options, columns_of(options))
    wait_until(
        lambda: sum(each.end for each in bounds_of(task).values()) == count,
        "all messages are in their queues",
    )
    bounds = bounds_of(task)
    ranges = [QueueRange(queue, *each) for queue, each in bounds.items()]
    found = []
    for bundle in plan_bundles(map(move or (lambda part: part), ranges), 7_000):
        for batch in read_bundle(task.pulls, task.read_settings, bundle):
            batch.validate(full=True)
            found += batch.to_pylist()
    return found


def test_rows_go_there_and_back(java, topic):
    namesrv, _ = java
    assert write(namesrv, topic, rows()) == COUNT
    found = read(namesrv, topic, COUNT)
    assert Counter(int(row["body"]) for row in found) == Counter(range(COUNT))
    digits = task_digits("job|0").decode()
    for row in found:
        number = int(row["body"])
        assert row["msgId"] == f"{digits}{number >> 16:08X}{number & 0xFFFF:04X}"
        assert (row["keys"], row["tags"]) == (f"k{number}", f"T{number % 3}")
        assert row["brokerName"] == NAME
    assert {row["queueId"] for row in found} == set(range(QUEUES))


def test_tags_are_chosen_by_java(java, topic):
    namesrv, _ = java
    write(namesrv, topic, rows())
    found = read(namesrv, topic, COUNT, subExpression="T0 || T2", pullBatchSize="100")
    wanted = [n for n in range(COUNT) if n % 3 != 1]
    assert sorted(int(row["body"]) for row in found) == wanted


def test_single_messages(java, topic):
    namesrv, _ = java
    table = pa.table(
        {"body": ["a" * 9_000, "b", "c"], "delayTimeLevel": [None, 1, None]},
        schema=pa.schema({"body": pa.string(), "delayTimeLevel": pa.int32()}),
    )
    assert write(namesrv, topic, table, compressThreshold="1k") == 3
    found = read(namesrv, topic, 3)
    assert {row["body"][:1] for row in found} == {b"a", b"b", b"c"}


def test_bounds_and_loss(java, topic):
    namesrv, _ = java
    table = pa.table({"body": [f"{n}" for n in range(100)], "queueId": [1] * 100})
    table = table.set_column(1, "queueId", table["queueId"].cast(pa.int32()))
    write(namesrv, topic, table)
    options = Options({"nameServer": namesrv, "subscribe": topic})
    assert len(read(namesrv, topic, 100)) == 100
    found = bounds_of(live_read_settings(options, columns_of(options)))
    bounds = {queue.queue_id: each for queue, each in found.items()}
    assert bounds[1] == Bounds(0, 100)
    assert bounds[0] == Bounds(0, 0)

    def beyond(part):
        return replace(part, end=200) if part.queue.queue_id == 1 else part

    with pytest.raises(LostData, match="position 200 is after the end 100"):
        read(namesrv, topic, 100, beyond)
    found = read(namesrv, topic, 100, beyond, failOnDataLoss="false")
    assert [int(row["body"]) for row in found] == list(range(100))


def test_sql_asks_topics_of_javas_broker(java, topic):
    pytest.importorskip("duckdb")
    # imported here: the other tests need no DuckDB
    from rmq_spark.sql.database import Database
    from rmq_spark.sql.live import LiveTopics

    namesrv, _ = java
    write(namesrv, topic, rows())
    read(namesrv, topic, COUNT)
    live = LiveTopics(
        ClientSettings((namesrv,), Identity(), TopicSelection()), threads=2
    )
    database = Database(live, "500MB", threads=2)
    try:
        assert ask(
            database,
            f'SELECT count(*), count(DISTINCT keys), sum("text"::INT) FROM "{topic}"',
        ) == [(COUNT, COUNT, COUNT * (COUNT - 1) // 2)]
        queues = f"SELECT sum(messages), count(*) FROM queues WHERE topic = '{topic}'"
        assert ask(database, queues) == [(COUNT, QUEUES)]
        # topics of Java's broker that no client made are asked, too
        assert ask(database, "SELECT count(*) >= 20000 FROM all_messages") == [(True,)]
    finally:
        database.close()


def ask(database, statement):
    batches = database.run(statement).batches
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
