"""Jobs in a real Spark, on two cores of this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from rmq.testing import BrokerThread
from rmq_spark.cli import main
from rmq_spark.export.exporter import Exporter, SparkRunner
from rmq_spark.export.manifest import Settings
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.store_source import StoreSource
from rmq_spark.options import Options
from rmq_spark.segments.schema import EXPORTED, arrow_schema, columns_of, spark_schema
from tests.spark.export.test_exporter import check_exact, export_all
from tests.spark.stores import StoreWriter, orders

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "data/spark.md"
COUNT = 20_000


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    writer = StoreWriter(tmp_path_factory.mktemp("filled"), 1 << 20)
    writer.append(orders(COUNT))
    return writer


@pytest.fixture
def store(filled):
    return str(filled.root)


def rmq(spark, **options):
    return spark.read.format("rmq").options(**{"splitBytes": "512k", **options})


def test_counts_by_topic(spark, store):
    counts = spark.read.format("rmq").load(store).groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in counts} == {
        f"orders_0{i}": COUNT // 4 for i in range(4)
    }


FRESH = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").getOrCreate()
spark.read.format("rmq").load(sys.argv[1]).groupBy("topic").count().show()
"""


def test_three_lines_of_a_fresh_python(store, tmp_path):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    clean["SPARK_LOCAL_IP"] = "127.0.0.1"

    def python(*arguments):
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=clean,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )

    if python("-c", "import rmq, rmq_spark").returncode:
        pytest.skip("rmq is not installed for this Python, it is only in its path")
    done = python("-c", FRESH, store)
    assert done.returncode == 0, done.stderr[:4000]
    shown = dict(re.findall(r"(orders_0\d)\|(\d+)", done.stdout.replace(" ", "")))
    assert shown == {f"orders_0{i}": str(COUNT // 4) for i in range(4)}


def test_every_row_once(spark, store):
    rows = rmq(spark).load(store).select("keys", "physicalOffset", "tags").collect()
    assert sorted(int(row.keys[1:]) for row in rows) == list(range(COUNT))
    assert len({row.physicalOffset for row in rows}) == COUNT


def test_all_columns_come_through(spark, store):
    row = rmq(spark).load(store).where("keys = 'k7'").first()
    assert row.properties["TAGS"] == row.tags == "Tag2"
    assert bytes(row.body) == list(orders(8))[7].body
    assert row.storeHost == "10.0.0.2:10911"


def test_a_schema_prunes(spark, store):
    frame = spark.read.schema("body string, topic string").format("rmq").load(store)
    assert frame.columns == ["body", "topic"]
    assert frame.count() == COUNT
    assert frame.first().body.startswith('{"order":')


def test_kafka_schema(spark, store):
    frame = rmq(spark, schema="kafka", includeHeaders="true").load(store)
    row = frame.where("CAST(key AS STRING) = 'k9'").first()
    assert (row.topic, row.timestampType) == ("orders_03", 1)
    assert {h.key: bytes(h.value) for h in row.headers}["WAIT"] == b"true"


def test_filters_are_taken_only_on_demand(spark, store):
    frame = rmq(spark, pushFilters="true").load(store).where("topic = 'orders_02'")
    assert frame.count() == COUNT // 4
    assert frame.where("topic IN ('orders_01', 'orders_02')").count() == COUNT // 4


def test_sql_view(spark, store):
    spark.sql(f"CREATE TEMPORARY VIEW v USING rmq OPTIONS (store '{store}')")
    assert spark.sql("SELECT count(DISTINCT keys) AS n FROM v").first().n == COUNT


def test_errors_keep_their_sentence(spark, tmp_path, store):
    with pytest.raises(Exception, match="there is no store at"):
        spark.read.format("rmq").load(str(tmp_path / "nowhere")).count()
    with pytest.raises(Exception, match="did you mean splitBytes"):
        spark.read.format("rmq").option("splitByte", "1").load(store).count()


def test_available_now_through_a_checkpoint(spark, tmp_path):
    writer = StoreWriter(tmp_path / "store", 1 << 20)
    writer.append(orders(6_000))
    rows, batches = [], []

    def collect(batch, number):
        batches.append(number)
        rows.extend(int(row.keys[1:]) for row in batch.select("keys").collect())

    def run():
        frame = spark.readStream.format("rmq").option("startingOffsets", "earliest")
        query = (
            frame.option("maxBytesPerTrigger", "500k")
            .load(str(writer.root))
            .writeStream.foreachBatch(collect)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)

    run()
    assert sorted(rows) == list(range(6_000))
    assert len(batches) >= 3
    run()
    assert len(rows) == 6_000
    writer.append(orders(500, start=6_000))
    run()
    assert sorted(rows) == list(range(6_500))


def test_export_in_spark_workers(session, tmp_path):
    writer = StoreWriter(tmp_path / "store", 1 << 20)
    writer.append(orders(10_000))
    settings = Settings("broker-a", "parquet", list(EXPORTED), "map", False)
    limits = ExportLimits(1 << 20, 300_000)
    runner = SparkRunner(session)
    feed = StoreSource(writer.root, limits)
    export_all(Exporter(feed, tmp_path / "out", settings, runner, limits))
    check_exact(tmp_path / "out", 10_000)


def test_an_error_of_a_worker_is_one_sentence(session, tmp_path):
    writer = StoreWriter(tmp_path / "store", 1 << 20)
    writer.append(orders(3_000))
    with (tmp_path / "store" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(4)
        file.write(b"\xff")
    folders = ["--store", str(writer.root), "--out", str(tmp_path / "out")]
    end = ["--confirm-offset", str(writer.end)]
    result = CliRunner().invoke(
        main, ["export", *folders, *end, "--batch-bytes", "1k", "--master", "local[2]"]
    )
    assert result.exit_code == 1
    assert "at offset 0: no record starts here" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_the_arrow_types_are_those_of_spark(spark):
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    for given in ({}, {"schema": "kafka", "includeHeaders": "true"}):
        columns = columns_of(Options({"store": "s", **given}))
        kind = StructType.fromDDL(spark_schema(columns))
        theirs = to_arrow_schema(kind, timezone="UTC")
        assert arrow_schema(columns).equals(theirs)


EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)


def test_the_examples_of_the_manual_run(spark, store, tmp_path, capsys):
    for package in ("deltalake", "duckdb"):
        pytest.importorskip(package)
    names = {"spark": spark, "store": store, "out": str(tmp_path / "delta")}
    assert len(EXAMPLES) >= 9
    with BrokerThread(tmp_path / "broker") as broker:
        names["name_server"] = broker.name_server
        for example in EXAMPLES:
            exec(compile(example, str(DOCUMENT), "exec"), names)
        assert len(broker.messages("copies")) == COUNT // 4
    shown = capsys.readouterr().out
    assert f"{COUNT}\n" in shown
    assert "orders_03" in shown
    assert "####" in shown
