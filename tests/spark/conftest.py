"""Fixtures of the tests of Spark; without pyarrow the tests are skipped."""

from importlib.util import find_spec

import pytest

from tests.spark.stores import StoreWriter

HAS_ARROW = find_spec("pyarrow") is not None
if HAS_ARROW:
    from rmq_spark.commit_log import find_end
    from rmq_spark.options import Options
    from rmq_spark.plan import plan_ranges
    from rmq_spark.schema import columns_of
    from rmq_spark.segments import read_range, reading_of
else:
    collect_ignore_glob = ["test_*.py"]


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
        reading = reading_of(options, columns_of(options))
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
