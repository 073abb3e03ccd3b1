"""Seconds of `rmq sql` over five million messages, beside the limits to keep.

    python lab/sql.py [--rows 5000000] [--rounds 5] [--data FOLDER]

Each figure is the median of the rounds, of whole processes or of statements in one
database; the log is in the page cache.  The exit code is 1 if a limit is exceeded.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "spark")]

from rmq.core.errors import RmqError
from rmq_spark.sql.database import Database
from rmq_spark.sql.dataset import ScanSettings
from rmq_spark.sql.log_snapshot import StoreLog
from rmq_spark.sql.origin import Stores
from tests.spark.stores import START_MS, orders, write_store

SEGMENT_BYTES = 1 << 30
THREADS = 2
COUNT = "SELECT topic, count(*) FROM messages GROUP BY topic ORDER BY topic"
FIRST = "SELECT topic, queueId, queueOffset FROM messages LIMIT 1"
OTHERS = {
    "bytes of bodies": "SELECT sum(octet_length(body)) FROM messages",
    "one topic": "SELECT max(queueOffset) FROM messages WHERE topic = 'orders_01'",
    "all columns": "SELECT max(COLUMNS(*)::VARCHAR) FROM messages",
}


def range_of(rows: int) -> str:
    """Five seconds of store time in the middle of the log."""
    middle = START_MS + rows // 100
    bounds = [f"make_timestamptz({(middle + s) * 1000})" for s in (0, 5_000)]
    return (
        "SELECT topic, count(*) FROM messages WHERE storeTimestamp "
        f"BETWEEN {bounds[0]} AND {bounds[1]} GROUP BY topic ORDER BY topic"
    )


def show(name: str, seconds: list[float], limit_s: float = 0.0) -> bool:
    """Print a row; whether it keeps its limit."""
    median = statistics.median(seconds)
    limit = f"limit {limit_s:.1f}" if limit_s else ""
    print(f"{name:<50}{median:6.2f} s  best {min(seconds):.2f}  {limit}", flush=True)
    return not limit_s or median <= limit_s


def timed(job: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of each round."""
    took = []
    for _ in range(rounds):
        start = time.perf_counter()
        job()
        took.append(time.perf_counter() - start)
    return took


def statements(store: Path, rows: int, rounds: int) -> bool:
    """Measure statements in one database; whether they keep their limits."""
    one_key = f"SELECT topic, queueOffset FROM messages WHERE keys = 'k{rows * 4 // 5}'"
    origin = Stores([StoreLog(store, "broker-a")], ScanSettings(THREADS))
    database = Database(origin, "1GB", threads=THREADS)

    def run(statement: str) -> None:
        result = database.run(statement)
        assert result is not None
        assert sum(batch.num_rows for batch in result.batches)

    try:
        kept = [
            show("first question of all, nothing kept", timed(lambda: run(COUNT), 1)),
            show("count by topic", timed(lambda: run(COUNT), rounds), 1.0),
            show("5 s of store time", timed(lambda: run(range_of(rows)), rounds), 0.4),
        ]
        for name, statement in [*OTHERS.items(), ("one key", one_key)]:
            show(name, timed(lambda given=statement: run(given), rounds))
    finally:
        database.close()
    return all(kept)


def processes(store: Path, rows: int, rounds: int) -> bool:
    """Measure the command; whether it keeps its limit."""

    def command(statement: str) -> None:
        words = [sys.executable, "-m", "rmq", "sql", "-s", str(store), statement]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)

    return all(
        [
            show(
                "process: start to first row",
                timed(lambda: command(FIRST), rounds),
                0.5,
            ),
            show("process: count by topic", timed(lambda: command(COUNT), rounds)),
            show(
                "process: 5 s of time", timed(lambda: command(range_of(rows)), rounds)
            ),
        ]
    )


def main() -> int:
    """Make a store if there is none, then measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path)
    chosen = parser.parse_args()
    data = chosen.data or Path(tempfile.mkdtemp(prefix="rmq-bench-"))
    store = data / f"store-{chosen.rows}"
    try:
        if not store.exists():
            write_store(store, orders(chosen.rows), SEGMENT_BYTES)
        print(f"{chosen.rows:,} messages, seconds:")
        given = store, chosen.rows, chosen.rounds
        kept = [statements(*given), processes(*given)]
        return 0 if all(kept) else 1
    except RmqError as error:
        print(f"bench-sql: {error}", file=sys.stderr)
        return 1
    finally:
        if chosen.data is None:
            shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
