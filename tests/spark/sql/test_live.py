"""Topics of a running broker in SQL."""

import itertools
import random
from collections import Counter

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.outgoing.identity import Identity
from rmq.testing import BrokerThread
from rmq_spark.live.client import ClientSettings, LiveClient
from rmq_spark.live.reader import read_bundle
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task
from rmq_spark.sql.database import Database, SqlError
from rmq_spark.sql.live import LiveTopics
from tests.spark.sql.conftest import rows

pa = pytest.importorskip("pyarrow")
pytestmark = pytest.mark.slow
COUNT = 2_000
BROKER = "broker-test"
numbers = itertools.count()


def send(broker, topic, numbers):
    options = SinkOptions({"nameServer": broker.name_server, "topic": topic})
    table = pa.table(
        {"body": [b'{"n":%d}' % n for n in numbers], "keys": [f"k{n}" for n in numbers]}
    )
    sink_task(options, [("body", "binary"), ("keys", "string")]).write(
        table.to_batches(max_chunksize=100), topic, 0
    )


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        running.create_topic("Orders", 4)
        running.create_topic("Empty", 2)
        running.create_topic("Bills", 2)
        send(running, "Orders", range(COUNT))
        send(running, "Bills", range(COUNT, COUNT + 100))
        yield running


@pytest.fixture
def database(broker):
    servers = (broker.name_server,)
    origin = LiveTopics(
        ClientSettings(servers, Identity(), TopicSelection()), threads=2
    )
    made = Database(origin, "500MB", threads=2)
    yield made
    made.close()


def test_topics_are_tables(database):
    assert rows(database, "SELECT count(*) FROM messages") == [(COUNT + 100,)]
    assert rows(database, "SELECT text FROM Orders WHERE keys = 'k7'") == [('{"n":7}',)]
    total = "SELECT sum((text ->> 'n')::INT), count(DISTINCT queueId) FROM Orders"
    assert rows(database, total) == [(COUNT * (COUNT - 1) // 2, 4)]
    assert rows(database, "SELECT * FROM Empty") == []
    assert rows(database, "SELECT DISTINCT brokerName FROM messages") == [(BROKER,)]
    assert {"messages", "Orders", "Bills", "Empty"} <= {*database.tables()}


def test_queues_are_asked_and_not_counted(database, monkeypatch):
    monkeypatch.setattr("rmq_spark.sql.live.read_bundle", lambda *_: 1 / 0)
    found = rows(
        database,
        "SELECT queueId, minOffset, maxOffset, messages FROM queues "
        "WHERE topic = 'Bills' ORDER BY queueId",
    )
    assert [(queue, first) for queue, first, _, _ in found] == [(0, 0), (1, 0)]
    assert sum(messages for *_, messages in found) == 100
    assert rows(database, "SELECT count(*) FROM queues WHERE topic = 'Orders'") == [
        (4,)
    ]
    assert rows(database, "SELECT * FROM segments") == []


def test_only_what_a_filter_wants_is_asked_for(database, monkeypatch):
    asked, real = [], LiveClient.bounds

    def bounds(client, *, fails):
        found = real(client, fails=fails)
        asked.append({queue.topic for queue in found})
        return found

    monkeypatch.setattr(LiveClient, "bounds", bounds)
    pulled = []

    def read(settings, reading, bundle):
        pulled.extend(bundle.ranges)
        return read_bundle(settings, reading, bundle)

    monkeypatch.setattr("rmq_spark.sql.live.read_bundle", read)
    rule = "queueId = 1 AND queueOffset >= 10"
    (found,) = rows(database, f"SELECT min(queueOffset) FROM Bills WHERE {rule}")
    assert found == (10,)
    assert asked == [{"Bills"}]
    assert {each.queue.queue_id for each in pulled} == {1}


def test_a_statement_sees_a_topic_as_it_was_at_first(broker, database):
    topic = f"Grows{next(numbers)}"
    broker.create_topic(topic, 1)
    send(broker, topic, range(10))
    batches = database.run(f"SELECT a.keys FROM {topic} a JOIN {topic} b USING (keys)")
    send(broker, topic, range(10, 20))
    assert sum(batch.num_rows for batch in batches.batches) == 10
    assert rows(database, f"SELECT count(*) FROM {topic}") == [(20,)]


@pytest.mark.parametrize("seed", range(3))
def test_any_filter_gives_the_rows_of_a_scan_in_memory(database, seed):
    chance = random.Random(seed)
    rows(database, "CREATE TABLE copied AS SELECT * FROM messages")
    for _ in range(15):
        rule = f" {chance.choice(['AND', 'OR'])} ".join(
            chance.choice(
                [
                    f"topic = '{chance.choice(['Orders', 'Bills', 'Empty', 'none'])}'",
                    f"queueId <> {chance.randrange(4)}",
                    f"queueOffset BETWEEN 10 AND {chance.randrange(600)}",
                    f"keys LIKE '%{chance.randrange(10)}'",
                    "brokerName = 'broker-test'",
                    "storeTimestamp < now()",
                    "tags IS NULL",
                ]
            )
            for _ in range(chance.randrange(1, 4))
        )
        live, copied = (
            rows(database, f"SELECT keys, topic FROM {table} WHERE {rule}")
            for table in ("messages", "copied")
        )
        assert Counter(live) == Counter(copied), rule


def test_an_archive_is_for_stores(broker):
    origin = LiveTopics(
        ClientSettings((broker.name_server,), Identity(), TopicSelection())
    )
    with pytest.raises(SqlError, match="needs the stores"):
        Database(origin, "500MB", archive=object())


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["sql", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_command_asks_brokers(broker, tmp_path):
    words = "--name-server", broker.name_server
    assert run("SELECT count(*) AS n FROM Orders", *words).stdout == f"n\n{COUNT}\n"
    result = run("SELECT 1", *words, "--store", str(tmp_path), code=2)
    assert "-n cannot be combined" in result.stderr
    problem = run("SELECT * FROM Orderz", *words, code=1).stderr
    assert problem == "rmq: there is no table Orderz; did you mean Orders?\n"


def test_brokers_that_are_away_are_a_sentence():
    result = run("SELECT 1", "--name-server", "127.0.0.1:1", code=1)
    assert "127.0.0.1:1" in result.stderr
    assert len(result.stderr.splitlines()) == 1
