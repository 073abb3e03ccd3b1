"""Rows per second and CPU per million rows: scans, exports and their rivals.

    python lab/spark/run.py [--rows 5000000] [--rounds 3] [--data FOLDER]

CPU seconds are those of the JVM, of the Python workers, and of both, per million rows.
Also these grow beside other programs and while the JVM compiles, so the figures to keep
are ratios to Spark's scan of the same rows as Parquet, taken in the same round: of all
CPU seconds, and of Python's.  Each figure is the median of the rounds from the fourth
on; the variants take turns.  A Python source that decodes nothing costs what is
Spark's.  At the end: the most memory that a Python worker had.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "spark")]

from rmq._fastpath.log.decode import decode_record
from rmq.core.errors import RmqError
from rmq.protocol.hosts import host_text
from rmq.protocol.properties import decode_properties
from rmq_spark.export.exporter import Exporter, LocalRunner, Runner, SparkRunner
from rmq_spark.export.manifest import Settings
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.store_source import StoreSource
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import find_end, find_segments
from rmq_spark.segments.plan import plan_ranges
from rmq_spark.segments.reader import read_range, read_settings
from rmq_spark.segments.schema import EXPORTED, columns_of, spark_schema
from rmq_spark.session import start_session
from tests.spark.stores import orders, write_store

SEGMENT_BYTES = 1 << 30
PLAIN_ROWS = 100_000
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UPS = 3
"""Rounds that are not counted: the JVM compiles."""
RATIOS = "x Parquet", "Python x Parquet"
PARQUET = "Parquet of the same rows"
ALL_COLUMNS = "all columns, properties as string"
SEVEN = "seven columns"
FOLLOW = "export without Spark, as follow does"
FLOOR = "a source that decodes nothing"
GOALS = {ALL_COLUMNS: 2.0, SEVEN: 1.05, FOLLOW: 1.8}
"""Times the CPU seconds of Parquet, which these may take."""
PYTHON_GOALS = {ALL_COLUMNS: 0.5}
"""The same for those of Python alone."""
Case = tuple[str, Callable[[], object]]


def family() -> Iterator[tuple[int, str, list[str]]]:
    """Processes from this one down: (pid, name, fields of stat behind the name)."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().split("(", 1)[1].rsplit(")", 1)
        except (FileNotFoundError, ProcessLookupError):
            continue
        stats.append((int(path.parent.name), name, rest.split()))
    known = {os.getpid()}
    for _ in range(5):
        known |= {pid for pid, _, fields in stats if int(fields[1]) in known}
    return (one for one in stats if one[0] in known)


def cpu_seconds() -> tuple[float, float]:
    """CPU used so far below this process: (JVM, Python workers and this process)."""
    jvm = python = 0.0
    for _, name, fields in family():
        used = sum(map(int, fields[11:15])) / TICKS
        jvm, python = (jvm + used, python) if name == "java" else (jvm, python + used)
    return jvm, python


def worker_mib() -> int:
    """The most memory that one of the living Python workers has had."""
    peaks = [0]
    for pid, name, _ in family():
        if name != "java" and pid != os.getpid():
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{pid}/status").read_text()
                peaks += map(int, re.findall(r"VmHWM:\s+(\d+) kB", status))
    return max(peaks) >> 10


class Round(NamedTuple):
    """Seconds that a case took in one round."""

    wall: float
    jvm: float
    python: float


def measure(cases: list[Case], rows: int, rounds: int, warm_ups: int = WARM_UPS) -> int:
    """Run the cases in turns, print a row for each; most memory of a worker in MiB."""
    peak = 0
    results: dict[str, list[Round]] = {name: [] for name, _ in cases}
    for number in range(warm_ups + rounds):
        for name, job in cases:
            before, start = cpu_seconds(), time.perf_counter()
            job()
            seconds = time.perf_counter() - start
            after = cpu_seconds()
            peak = max(peak, worker_mib())
            if number >= warm_ups:
                used = after[0] - before[0], after[1] - before[1]
                results[name].append(Round(seconds, *used))
    print("\n".join(table(results, rows)), flush=True)
    return peak


def table(results: dict[str, list[Round]], rows: int) -> Iterator[str]:
    """A row for each case: medians, and medians of the ratios of each round."""
    titles = "case", "k rows/s", "JVM", "Python", "CPU-s/Mrow", *RATIOS
    yield f"| {' | '.join(titles)} |"
    yield f"|---{'|---:' * (len(titles) - 1)}|"
    million = rows / 1e6
    whole = [each.jvm + each.python for each in results[PARQUET]]
    for name, found in results.items():
        wall, jvm, python = map(statistics.median, zip(*found, strict=True))
        ratios = [
            statistics.median(
                used / base for used, base in zip(cpu, whole, strict=True)
            )
            for cpu in (
                [each.jvm + each.python for each in found],
                [each.python for each in found],
            )
        ]
        shown = [
            f"{ratio:.2f}" + (f" (goal {goals[name]:g})" if name in goals else "")
            for ratio, goals in zip(ratios, (GOALS, PYTHON_GOALS), strict=True)
        ]
        yield (
            f"| {name} | {rows / wall / 1e3:,.0f} | {jvm / million:.2f} "
            f"| {python / million:.2f} | {(jvm + python) / million:.2f} "
            f"| {' | '.join(shown)} |"
        )


def decode_only(store: Path, **given: str) -> None:
    """The decoder in this process, without Spark."""
    options = Options({"store": str(store), **given})
    reading = read_settings(options, columns_of(options))
    for part in plan_ranges(store, 0, find_end(store), split_bytes=128 << 20):
        for _ in read_range(reading, part):
            pass


def plain_python(store: Path) -> float:
    """Microseconds a row of a decoder that makes a Python object of each."""
    with open(find_segments(store)[0].path, "rb") as file:
        data = file.read(min(300 * PLAIN_ROWS, find_end(store)))
    position = rows = 0
    start = time.process_time()
    while rows < PLAIN_ROWS and position < len(data) - 1_000:
        record = decode_record(data, position)
        decode_properties(record.properties.decode())
        host_text(record.born_host)
        position += record.size
        rows += 1
    return (time.process_time() - start) / rows * 1e6


def main() -> int:
    """Generate a store if there is none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path)
    chosen = parser.parse_args()
    data = chosen.data or Path(tempfile.mkdtemp(prefix="rmq-bench-"))
    try:
        run(data, chosen.rows, chosen.rounds)
    except RmqError as error:
        print(f"bench-spark: {error}", file=sys.stderr)
        return 1
    finally:
        if chosen.data is None:
            shutil.rmtree(data, ignore_errors=True)
    return 0


def run(data: Path, rows: int, rounds: int, warm_ups: int = WARM_UPS) -> None:
    """Measure scans, then exports."""
    # imported on use: pyspark is an extra
    from lab.spark.floor import NAME, FloorSource, write_batch

    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    spark = start_session("local[2]", {"spark.driver.memory": "3g"})
    spark.dataSource.register(FloorSource)
    store, parquet, out = data / f"store-{rows}", data / "parquet", data / "out"
    if not store.exists():
        write_store(store, orders(rows), SEGMENT_BYTES)
    print(f"pyspark {spark.version}, {rows:,} rows, {find_end(store):,} bytes of log\n")

    def scan(**given: str) -> Callable[[], object]:
        frame = spark.read.format("rmq").options(**given).load(str(store))
        return lambda: frame.write.format("noop").mode("overwrite").save()

    text = {"propertiesFormat": "string"}
    if not parquet.exists():
        frame = spark.read.format("rmq").options(**text).load(str(store))
        frame.write.parquet(str(parquet))
    saved = spark.read.parquet(str(parquet))

    def scan_floor(**given: str) -> Callable[[], object]:
        """Batches of the same columns that nobody has to decode."""
        options = Options({"store": str(store), **given})
        columns = columns_of(options)
        path = str(data / f"{options['columns'][0]}.arrow")
        part = plan_ranges(store, 0, find_end(store), split_bytes=128 << 20)[0]
        write_batch(next(read_range(read_settings(options, columns), part)), path)
        frame = spark.read.format(NAME).options(
            batch=path, columns=spark_schema(columns), rows=str(rows)
        )
        loaded = frame.load()
        return lambda: loaded.write.format("noop").mode("overwrite").save()

    def scan_parquet() -> None:
        saved.write.format("noop").mode("overwrite").save()

    scanning = measure(
        [
            (ALL_COLUMNS, scan(**text)),
            ("all columns, properties as map", scan()),
            (SEVEN, scan(columns="slim")),
            (f"all columns, {FLOOR}", scan_floor(**text)),
            (f"seven columns, {FLOOR}", scan_floor(columns="slim")),
            (PARQUET, scan_parquet),
            ("decoder alone, as string", lambda: decode_only(store, **text)),
            (
                "decoder alone, seven columns",
                lambda: decode_only(store, columns="slim"),
            ),
        ],
        rows,
        rounds,
        warm_ups,
    )
    print(f"\nplain Python: {plain_python(store):.1f} CPU-s/Mrow (first part)\n")

    settings = Settings("broker-a", "parquet", list(EXPORTED), "string", False)

    def export(runner: Runner) -> None:
        shutil.rmtree(out, ignore_errors=True)
        limits = ExportLimits(batch_bytes=1 << 40)
        Exporter(StoreSource(store, limits), out, settings, runner, limits).run_batch()

    def partition_by() -> None:
        frame = spark.read.format("rmq").options(**text).load(str(store))
        frame.selectExpr("*", "to_date(storeTimestamp) AS dt").write.mode(
            "overwrite"
        ).partitionBy("topic", "dt").parquet(str(data / "spark-out"))

    exporting = measure(
        [
            ("rmq-spark export", lambda: export(SparkRunner(spark))),
            (FOLLOW, lambda: export(LocalRunner())),
            ("Spark's partitionBy writer", partition_by),
            (PARQUET, scan_parquet),
        ],
        rows,
        rounds,
        min(1, warm_ups),
    )
    print(f"\nmost memory of a worker: {max(scanning, exporting)} MiB")
    spark.stop()


if __name__ == "__main__":
    sys.exit(main())
