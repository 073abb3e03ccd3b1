"""Fixtures of the tests of `rmq sql`; without DuckDB the tests are skipped."""

from importlib.util import find_spec

import pytest

HAS_DUCKDB = find_spec("duckdb") is not None
if HAS_DUCKDB:
    from rmq_spark.sql.database import Database
    from rmq_spark.sql.dataset import ScanSettings
    from rmq_spark.sql.log_snapshot import StoreLog
    from rmq_spark.sql.origin import Stores
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """The folder of the kept splits."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "rmq" / "splits"


@pytest.fixture
def opened():
    """Open databases of stores by their broker names; they are closed at the end."""
    made = []

    def call(
        *,
        threads=2,
        skip_corrupt=False,
        allow_loss=False,
        archive=None,
        timeout_s=None,
        **stores,
    ):
        logs = [
            StoreLog(folder, name, fails_on_loss=not allow_loss)
            for name, folder in stores.items()
        ]
        limits = ScanSettings(threads, skip_corrupt, allow_loss)
        given = {"archive": archive, "timeout_s": timeout_s, "threads": threads}
        made.append(Database(Stores(logs, limits), "500MB", **given))
        return made[-1]

    yield call
    for database in made:
        database.close()


@pytest.fixture
def ask(opened, writer):
    """Rows of a statement about the store of `writer`."""
    known = []

    def call(statement, **given):
        if given or not known:
            known.append(opened(a=writer.root, **given))
        return rows(known[-1], statement)

    return call


def rows(database, statement):
    """The rows as tuples; None if the statement has none."""
    result = database.run(statement)
    if result is None:
        return None
    return [
        tuple(row.values()) for batch in result.batches for row in batch.to_pylist()
    ]
