"""Fixtures of the tests of Spark; without pyarrow the tests are skipped."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.spark.stores import StoreWriter

HAS_ARROW = find_spec("pyarrow") is not None
if HAS_ARROW:
    from rmq_spark.options import Options
    from rmq_spark.segments.commit_log import find_end
    from rmq_spark.segments.plan import plan_ranges
    from rmq_spark.segments.reader import read_range, read_settings
    from rmq_spark.segments.schema import columns_of
else:
    collect_ignore_glob = ["test_*.py", "sql/test_*.py"]


def pytest_terminal_summary(terminalreporter):
    if not HAS_ARROW:
        terminalreporter.write_line(
            "tests/spark is left out: pyarrow is missing, pip install 'rmq[spark]'"
        )


@pytest.fixture
def read():
    """Read a whole store as the batch reader does; the rows as dictionaries."""

    def run(store, start=0, end=None, split_bytes=1 << 20, **given):
        options = Options({"store": str(store), **given})
        reading = read_settings(options, columns_of(options))
        stop = find_end(store, options["confirmOffset"]) if end is None else end
        ranges = plan_ranges(
            store,
            start,
            stop,
            split_bytes=split_bytes,
            verify_crc=options["verifyCrc"],
            fail_on_loss=options["failOnDataLoss"],
        )
        rows = []
        for part in ranges:
            for batch in read_range(reading, part):
                batch.validate(full=True)
                rows += batch.to_pylist()
        return rows

    return run


@pytest.fixture
def writer(tmp_path):
    """A writer of a store with small segments."""
    return StoreWriter(tmp_path / "store", 100_000)


QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.python.filterPushdown.enabled": "true",
}


@pytest.fixture(scope="session")
def session(tmp_path_factory):
    """A real Spark on two cores of this machine."""
    from rmq_spark.session import missing, start_session

    problem = missing()
    if problem:
        pytest.skip(problem)
    paths = [str(Path(p).resolve()) for p in sys.path if p]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    folder = str(tmp_path_factory.mktemp("warehouse"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_DIRS", folder)
        session = start_session("local[2]", QUICK | {"spark.sql.warehouse.dir": folder})
        yield session
        session.stop()


@pytest.fixture
def spark(session):
    return session.newSession()
