"""The sink and live topics, before Spark and in it: rows per second, CPU of the client.

    python lab/spark/topics.py [--rows 1000000] [--rounds 3] [--spark]

One task of the sink writes rows of 160 bytes to a broker in a process of its own, then
one task of the source reads them.  CPU seconds are those of this process per million
rows; the broker's are not in them.  Each line is a round: the first one is colder.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "spark"), str(ROOT / "bench")]

os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)

import pyarrow as pa
from client import broker

from rmq.client.admin import AdminClient
from rmq_spark.live.client import LiveClient
from rmq_spark.live.plan import QueueRange, plan_bundles
from rmq_spark.live.reader import read_bundle
from rmq_spark.live.settings import live_read_settings
from rmq_spark.options import Options
from rmq_spark.segments.schema import columns_of
from rmq_spark.session import start_session
from rmq_spark.sink.options import SinkOptions
from rmq_spark.sink.task import sink_task

TOPIC = "SparkBench"
BATCH_ROWS = 10_000
SLIM = "topic,queueId,queueOffset,body,tags,keys,storeTimestamp"


def rows(count: int) -> pa.Table:
    """Bodies of 70 to 109 bytes, with keys and tags."""
    bodies = [
        (b'{"order":%d,"sku":"' % i + b"%x" % (i * 7919) * 12)[: 70 + i % 40]
        for i in range(BATCH_ROWS)
    ]
    batch = pa.table(
        {
            "body": bodies,
            "keys": [f"k{i}" for i in range(BATCH_ROWS)],
            "tags": [f"Tag{i % 5}" for i in range(BATCH_ROWS)],
        }
    )
    return pa.concat_tables([batch] * (count // BATCH_ROWS))


def measured(name: str, work: Callable[[], int], *, has_cpu: bool = True) -> None:
    """Run it once and print its figures."""
    wall, cpu = time.perf_counter(), time.process_time()
    count = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    shown = f"{cpu / count * 1e6:8.2f} CPU-s" if has_cpu else ""
    print(f"{name:42}{count / wall / 1e3:8.0f} k rows/s{shown}", flush=True)


def write(address: str, table: pa.Table) -> int:
    """Send all rows by one task."""
    options = SinkOptions({"nameServer": address, "topic": TOPIC})
    sending = sink_task(options, [(name, "string") for name in table.column_names])
    return sending.write(table.to_batches(), "bench", 0)


def reads(address: str, columns: str, width: int, in_flight: int) -> Iterator[int]:
    """The rows of each batch of one task that reads the whole topic."""
    options = Options(
        {
            "nameServer": address,
            "subscribe": TOPIC,
            "columns": columns,
            "propertiesFormat": "string",
            "pullBatchSize": str(width),
            "pullsInFlight": str(in_flight),
        }
    )
    task = live_read_settings(options, columns_of(options))
    client = LiveClient(task.pulls.live)
    bounds = client.find_bounds(fails=True)
    client.close()
    ranges = [QueueRange(queue, each.first, each.end) for queue, each in bounds.items()]
    for bundle in plan_bundles(ranges, 1 << 40):
        for batch in read_bundle(task.pulls, task.read_settings, bundle):
            yield batch.num_rows


def in_spark(address: str, rounds: int) -> None:
    """Read the topic to Spark's noop sink, and write it to another topic."""
    # imported on use: pyspark is an extra
    from lab.spark.floor import NAME, FloorSource

    spark = start_session("local[2]", {"spark.sql.catalogImplementation": "in-memory"})
    spark.dataSource.register(FloorSource)
    frame = spark.read.format("rmq").option("nameServer", address)
    frame = frame.option("propertiesFormat", "string").option("subscribe", TOPIC)
    count = frame.option("columns", "queueOffset").load().count()

    def scan(columns: str) -> int:
        found = frame.option("columns", columns).load()
        found.write.format("noop").mode("overwrite").save()
        return count

    def forget() -> int:
        rows = frame.option("columns", "body,keys,tags").load()
        rows.write.format(NAME).mode("append").save()
        return count

    def copy() -> int:
        sink = frame.option("columns", "body,keys,tags").load().write.format("rmq")
        sink = sink.option("nameServer", address).option("topic", f"{TOPIC}Copy")
        sink.mode("append").save()
        return count

    for _ in range(rounds):
        measured("Spark: live, full", lambda: scan("full"), has_cpu=False)
        measured("Spark: live, topic", lambda: scan(SLIM), has_cpu=False)
        measured("Spark: live to a sink that forgets", forget, has_cpu=False)
        measured("Spark: live to sink", copy, has_cpu=False)
    spark.stop()


def main() -> None:
    """Print the lines of all rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--spark", action="store_true")
    asked = parser.parse_args()
    table = rows(asked.rows // asked.rounds)
    with broker() as address:
        with AdminClient([address]) as admin:
            (host,) = admin.masters()
            queues = {"readQueueNums": 16, "writeQueueNums": 16, "perm": 6}
            new = {"topic": TOPIC, "defaultTopic": "TBW102", **queues}
            admin.request(host.address, 17, new | {"topicFilterType": "SINGLE_TAG"})
        for _ in range(asked.rounds):
            measured("sink, frames of 256 KiB", lambda: write(address, table))
        for _ in range(asked.rounds):
            for columns, width, in_flight in (
                ("full", 32, 64), (SLIM, 32, 64), ("full", 8, 64), ("full", 1024, 8),
            ):  # fmt: skip
                name = f"live, {columns[:5]}, {width} a pull, {in_flight} on their way"
                measured(
                    name, lambda a=(columns, width, in_flight): sum(reads(address, *a))
                )
        if asked.spark:
            in_spark(address, asked.rounds)


if __name__ == "__main__":
    main()
