"""One stream in a real Spark, while its broker comes again, grows and moves."""

import time
from collections import Counter
from contextlib import ExitStack

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from pyspark.errors import StreamingQueryException

from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode
from rmq.testing import BrokerThread, NameServerThread
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task

pa = pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
PART = 2_000
TOPIC = "Orders"
WAIT_S = 120
AWAY_S = 60


class World:
    """A name server, and the brokers of one name; each start is at another port."""

    def __init__(self, folder, opened):
        self._folder = folder
        self._brokers = {}
        self._opened = opened
        self._sent = 0
        names = opened.enter_context(NameServerThread(folder / "names"))
        self.name_server = names.address
        opened.callback(lambda: [self.stop(name) for name in [*self._brokers]])

    def start(self, name, role="ASYNC_MASTER"):
        settings = {
            "namesrvAddr": self.name_server, "brokerRole": role,
            "brokerId": str(int(role == "SLAVE")),
            "mappedFileSizeCommitLog": str(16 << 20),
        }  # fmt: skip
        opened = ExitStack()
        self._brokers[name] = (
            opened,
            opened.enter_context(BrokerThread(self._folder / name, settings)),
        )
        return self._brokers[name][1]

    def stop(self, name):
        self._brokers.pop(name)[0].close()

    def send(self, broker, queues, topic=TOPIC, count=PART):
        """Messages with numbers that follow, in each of the queues."""
        numbers = range(self._sent, self._sent + count)
        table = pa.table(
            {
                "body": [b"%d" % n for n in numbers],
                "queueId": pa.array([n % queues for n in numbers], pa.int32()),
                "brokerName": ["broker-test"] * count,
            }
        )
        options = SinkOptions({"nameServer": self.name_server, "topic": topic})
        kinds = [("body", "binary"), ("queueId", "int"), ("brokerName", "string")]
        assert sink_task(options, kinds).write(table.to_batches(), "job", 0) == count
        self._sent += count
        return self._sent


@pytest.fixture
def world(tmp_path):
    with ExitStack() as opened:
        yield World(tmp_path, opened)


class Stream:
    """A query that never ends by itself; its rows."""

    def __init__(self, spark, name_server, folder, topics=TOPIC):
        self.rows = Counter()
        self.queues = set()
        self._folder = folder
        self._start = (
            spark.readStream.format("rmq")
            .option("nameServer", name_server)
            .option("subscribe", topics)
            .option("startingOffsets", "earliest")
            .option("consumerGroup", "outliving")
            .option("maxOffsetsPerTrigger", "1500")
            .load()
            .select("body", "queueId")
            .writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(folder))
            .trigger(processingTime="200 milliseconds")
            .start
        )
        self.query = self._start()

    def _take(self, batch, _):
        found = batch.collect()
        self.rows.update(int(row.body) for row in found)
        self.queues.update(row.queueId for row in found)

    def wait_for(self, count):
        """Until so many rows are there: each of them once."""
        end_s = time.monotonic() + WAIT_S
        while self.rows.total() < count:
            assert self.query.exception() is None, self.query.exception()
            assert time.monotonic() < end_s, self.rows.total()
            time.sleep(0.1)
        assert self.rows == Counter(range(count))


def test_a_stream_outlives_what_happens_to_its_broker(spark, world, tmp_path):
    broker = world.start("first")
    broker.create_topic(TOPIC, 2)
    count = world.send(broker, 2)
    stream = Stream(spark, world.name_server, tmp_path / "checkpoint")
    try:
        stream.wait_for(count)
        run_id = stream.query.runId

        world.stop("first")
        assert not stream.query.awaitTermination(AWAY_S), "it waits for the broker"
        broker = world.start("first")  # on its store, at another port
        stream.wait_for(world.send(broker, 2))

        broker.create_topic(TOPIC, 5)
        stream.wait_for(world.send(broker, 5))
        assert stream.queues == set(range(5))

        slave = world.start("second", "SLAVE")
        count = world.send(broker, 5)
        wait_until_equal(broker, slave)
        stream.wait_for(count)
        world.stop("second")
        world.stop("first")
        broker = world.start("second")  # the copy is the master now
        stream.wait_for(world.send(broker, 5))
        assert stream.query.runId == run_id, "it is the same run of the same query"
        assert stream.query.isActive
    finally:
        stream.query.stop()


def wait_until_equal(master, slave):
    """The slave has the log and the topics of its master."""
    ours, theirs = (each.node.broker.context for each in (master, slave))
    end_s = time.monotonic() + WAIT_S
    while (
        ours.store.log.end_offset != theirs.store.log.end_offset
        or ours.topics.data_version != theirs.topics.data_version
    ):
        assert time.monotonic() < end_s
        time.sleep(0.1)


def test_a_topic_goes_away_in_the_middle_of_a_stream(spark, world, tmp_path):
    """The stream goes on with the others; a topic of its name is another one."""
    broker = world.start("first")
    for topic in (TOPIC, "Goes"):
        broker.create_topic(topic, 1)
    world.send(broker, 1)
    count = world.send(broker, 1, "Goes")
    stream = Stream(spark, world.name_server, tmp_path / "checkpoint", f"{TOPIC},Goes")
    try:
        stream.wait_for(count)
        with AdminClient([world.name_server]) as admin:
            gone = {"topic": "Goes"}
            admin.request(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, gone)
            admin.request_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, gone)
        stream.wait_for(world.send(broker, 1))
        assert stream.query.isActive
        broker.create_topic("Goes", 1)
        world.send(broker, 1, "Goes", PART // 2)
        with pytest.raises(StreamingQueryException, match="deleted and created again"):
            stream.query.awaitTermination(WAIT_S)
    finally:
        stream.query.stop()
