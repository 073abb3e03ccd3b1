"""The sink in a real Spark, with a broker beside it."""

from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from pyspark.errors import PySparkException

from rmq.testing import BrokerThread
from tests.spark.stores import orders, write_store

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
COUNT = 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    settings = {"mappedFileSizeCommitLog": str(16 << 20)}
    with BrokerThread(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


def numbers(spark):
    return spark.range(COUNT).selectExpr(
        "CAST(id AS STRING) AS body", "CONCAT('k', id) AS keys"
    )


def test_a_frame_is_written_once(spark, broker):
    broker.create_topic("Written")
    writer = numbers(spark).write.format("rmq").mode("append")
    writer.option("nameServer", broker.name_server).option("topic", "Written").save()
    found = broker.messages("Written")
    assert Counter(int(m.body) for m in found) == Counter(range(COUNT))
    assert len({m.properties["UNIQ_KEY"] for m in found}) == COUNT
    assert all(m.properties["KEYS"] == f"k{int(m.body)}" for m in found)


def test_a_stream_that_is_replayed_writes_the_same_keys(spark, broker, tmp_path):
    broker.create_topic("Streamed")
    store = tmp_path / "store"
    write_store(store, orders(COUNT), 1 << 20)

    def run():
        query = (
            spark.readStream.format("rmq")
            .option("startingOffsets", "earliest")
            .option("maxBytesPerTrigger", "2m")
            .load(str(store))
            .select("body", "keys", "tags", "properties")
            .writeStream.format("rmq")
            .option("nameServer", broker.name_server)
            .option("topic", "Streamed")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    commits = sorted(
        (tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda p: int(p.name)
    )
    assert len(commits) > 1
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink()
    run()
    copies = Counter(m.properties["UNIQ_KEY"] for m in broker.messages("Streamed"))
    assert len(copies) == COUNT
    assert set(copies.values()) == {1, 2}
    bodies = {m.properties["UNIQ_KEY"]: m.body for m in broker.messages("Streamed")}
    assert Counter(bodies.values()) == Counter(each.body for each in orders(COUNT))


@pytest.mark.parametrize(
    ("frame", "options", "reason"),
    [
        ("SELECT 1 AS body", {"topic": "Written"}, "body is int, the sink accepts"),
        ("SELECT 'a' AS bdy", {"topic": "Written"}, "no column bdy"),
        ("SELECT 'a' AS body", {}, "no topic is set"),
        ("SELECT '' AS body", {"topic": "Written"}, "row 0 of the task cannot be"),
    ],
)
def test_errors_are_sentences(spark, broker, frame, options, reason):
    writer = spark.sql(frame).write.format("rmq").mode("append").options(**options)
    with pytest.raises(PySparkException, match=reason):
        writer.option("nameServer", broker.name_server).save()
