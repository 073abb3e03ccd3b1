"""Live topics in a real Spark, with a broker beside it."""

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from pyspark.errors import PySparkException

from rmq.client.admin import AdminClient
from rmq.testing import BrokerThread
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task

pa = pytest.importorskip("pyarrow")
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
COUNT = 20_000
BROKER = "broker-test"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"mappedFileSizeCommitLog": str(16 << 20)}
    with BrokerThread(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def fill(broker, topic, first, last):
    options = SinkOptions({"nameServer": broker.name_server, "topic": topic})
    table = pa.table({"body": [b"%d" % n for n in range(first, last)]})
    batches = table.to_batches(max_chunksize=500)
    sink_task(options, [("body", "binary")]).write(batches, "job", 0)


def live(reader, broker, topic):
    options = {"nameServer": broker.name_server, "subscribe": topic}
    return reader.format("rmq").options(**options)


def run_available(stream, checkpoint, path):
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_batch_of_a_topic(spark, broker):
    broker.create_topic("Live", 4)
    fill(broker, "Live", 0, COUNT)
    frame = live(spark.read, broker, "Live").option("rowsPerPartition", "3000").load()
    assert frame.rdd.getNumPartitions() == 7
    rows = frame.select("body", "queueId", "queueOffset").collect()
    assert Counter(int(row.body) for row in rows) == Counter(range(COUNT))
    assert len({(row.queueId, row.queueOffset) for row in rows}) == COUNT


def test_a_stream_that_comes_again(spark, broker, tmp_path):
    broker.create_topic("Stream", 3)
    fill(broker, "Stream", 0, COUNT)

    def run():
        stream = (
            live(spark.readStream, broker, "Stream")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "6000")
            .option("consumerGroup", "spark-stream")
            .load()
            .selectExpr("CAST(body AS STRING) AS number")
        )
        return run_available(stream, tmp_path / "checkpoint", tmp_path / "out")

    assert len(run().recentProgress) >= 4
    ends = committed(broker, "Stream")
    assert sum(ends) == COUNT, "the last batch is shown, too"
    fill(broker, "Stream", COUNT, COUNT + 500)
    run()
    assert sum(committed(broker, "Stream")) == COUNT + 500
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(int(row.number) for row in rows) == Counter(range(COUNT + 500))


def committed(broker, topic):
    with AdminClient([broker.name_server]) as admin:
        return [
            admin.offset(14, topic, queue, consumerGroup="spark-stream")
            for queue in admin.queues(topic)
        ]


def test_from_topic_to_topic(spark, broker, tmp_path):
    for topic in ("From", "To"):
        broker.create_topic(topic, 4)
    fill(broker, "From", 0, COUNT)
    query = (
        live(spark.readStream, broker, "From")
        .option("startingOffsets", "earliest")
        .load()
        .select("body")
        .writeStream.format("rmq")
        .option("nameServer", broker.name_server)
        .option("topic", "To")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = live(spark.read, broker, "To").load().select("body", "msgId").collect()
    assert Counter(int(row.body) for row in rows) == Counter(range(COUNT))
    assert len({row.msgId for row in rows}) == COUNT


def test_errors_are_sentences(spark, broker):
    with pytest.raises(PySparkException, match="no broker has a readable queue of"):
        live(spark.read, broker, "Nowhere").load().count()
    with pytest.raises(PySparkException, match="option splitBytes is for segments"):
        live(spark.read, broker, "Live").option("splitBytes", "1m").load()


JOB = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from rmq_spark.session import start_session
name_server, folder = sys.argv[1:]
spark = start_session("local[2]", {"spark.sql.catalogImplementation": "in-memory"})
query = (
    spark.readStream.format("rmq").option("nameServer", name_server)
    .option("subscribe", "Killed").option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", "2000").load().select("body")
    .writeStream.format("rmq").option("nameServer", name_server)
    .option("topic", "Copies").option("checkpointLocation", folder)
    .trigger(availableNow=True).start()
)
while query.isActive:
    query.awaitTermination(1)
    print(len(query.recentProgress), flush=True)
"""


def test_a_killed_driver_loses_nothing_and_repeats_have_equal_keys(broker, tmp_path):
    for topic in ("Killed", "Copies"):
        broker.create_topic(topic, 4)
    fill(broker, "Killed", 0, COUNT)
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", JOB, broker.name_server, str(tmp_path / "c")]
    for kills in (True, True, False):
        with subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as job:
            assert job.stdout is not None
            for line in job.stdout:
                if kills and int(line) >= 2:
                    os.killpg(job.pid, signal.SIGKILL)
                    break
        assert kills or job.returncode == 0
    found = broker.messages("Copies")
    assert {int(m.body) for m in found} == set(range(COUNT))
    by_key = {}
    for each in found:
        by_key.setdefault(each.properties["UNIQ_KEY"], set()).add(each.body)
    assert len(by_key) == COUNT
    assert all(len(bodies) == 1 for bodies in by_key.values())
