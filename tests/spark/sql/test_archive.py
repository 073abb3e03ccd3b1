"""Archive and log in one view: each message once, whatever was deleted or exported."""

import random
from collections import Counter
from datetime import UTC, datetime

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from rmq.core.errors import ConfigError, RmqError, StoreError
from rmq_spark.segments.commit_log import LostData
from rmq_spark.sql.archive import Archive
from tests.spark.exports import SETTINGS, export_all, exporter, folder_files
from tests.spark.sql.conftest import rows
from tests.spark.stores import START_MS, StoreWriter, orders

KEYS = "SELECT keys FROM"


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def export(out):
    def call(writer, broker_name="a"):
        settings = replace(SETTINGS, broker_name=broker_name)
        return export_all(exporter(writer, out, settings=settings))

    return call


def counts(database, table):
    return Counter(key for (key,) in rows(database, f"{KEYS} {table}"))


def expected(count):
    return Counter(f"k{i}" for i in range(count))


def test_everything_is_the_archive_and_then_the_log(writer, out, export, opened):
    writer.append(orders(300))
    export(writer)
    writer.append(orders(200, start=300))
    database = opened(archive=Archive(str(out)), a=writer.root)
    assert counts(database, "archive") == expected(300)
    assert counts(database, "after_archive") == expected(500) - expected(300)
    assert counts(database, "everything") == expected(500)
    assert {*database.tables()} >= {"archive", "after_archive", "everything"}


def test_a_statement_sees_what_was_exported_before_it(writer, out, export, opened):
    writer.append(orders(300))
    export(writer)
    database = opened(archive=Archive(str(out)), a=writer.root)
    for count in (400, 500):
        writer.append(orders(100, start=count - 100))
        assert counts(database, "everything") == expected(count)
        export(writer)
        assert counts(database, "archive") == expected(count)
        assert counts(database, "everything") == expected(count)


def test_messages_that_the_broker_has_deleted_are_in_everything(
    writer, out, export, opened
):
    writer.append(orders(1_000))
    export(writer)
    writer.append(orders(500, start=1_000))
    writer.delete_before(200_000)
    database = opened(archive=Archive(str(out)), a=writer.root)
    assert len(counts(database, "messages")) < 1_500
    assert counts(database, "everything") == expected(1_500)


def test_only_files_of_finished_batches_are_in_the_archive(writer, out, export, opened):
    writer.append(orders(300))
    export(writer)
    path = out / folder_files(out)[0]
    pq.write_table(pq.read_table(path), path.with_name("other.parquet"))
    database = opened(archive=Archive(str(out)), a=writer.root)
    assert counts(database, "archive") == expected(300)


def test_brokers_have_an_archive_together(tmp_path, out, export, opened):
    writers = [StoreWriter(tmp_path / name, 100_000) for name in "abc"]
    for number, writer in enumerate(writers[:2]):
        writer.append(orders(100, start=100 * number))
        export(writer, "ab"[number])
    writers[1].append(orders(50, start=200))
    writers[2].append(orders(50, start=250))
    stores = {name: w.root for name, w in zip("abc", writers, strict=True)}
    del stores["a"]
    database = opened(archive=Archive(str(out)), **stores)
    assert counts(database, "everything") == expected(300)
    by_broker = "SELECT brokerName, count(*) FROM everything GROUP BY 1 ORDER BY 1"
    assert rows(database, by_broker) == [("a", 100), ("b", 150), ("c", 50)]
    assert counts(database, "archive WHERE brokerName = 'a'") == expected(100)


def test_what_does_not_fit_is_refused(tmp_path, writer, out, export, opened):
    writer.append(orders(900))
    export(writer)
    other = StoreWriter(tmp_path / "other", 100_000)
    other.append(orders(100))
    database = opened(archive=Archive(str(out)), a=other.root)
    with pytest.raises(StoreError, match="archive and store do not belong together"):
        rows(database, f"{KEYS} everything")
    writer.append(orders(1_500, start=900))
    writer.delete_before(400_000)
    database = opened(archive=Archive(str(out)), a=writer.root)
    with pytest.raises(LostData, match="is missing"):
        rows(database, f"{KEYS} everything")
    with pytest.raises(ConfigError, match="has no finished export"):
        opened(archive=Archive(str(tmp_path / "none")), a=writer.root)


def condition(chance):
    moment = datetime.fromtimestamp((START_MS + chance.randrange(12)) / 1000, UTC)
    return chance.choice(
        [
            f"topic = 'orders_0{chance.randrange(5)}'",
            f"topic IN ('orders_00', 'orders_0{chance.randrange(4)}')",
            f"storeTimestamp {chance.choice('<>=')} timestamptz '{moment}'",
            f"physicalOffset >= {chance.randrange(200_000)}",
            f"queueId <> {chance.randrange(4)}",
            f"queueOffset BETWEEN 10 AND {chance.randrange(60)}",
            f"keys LIKE '%{chance.randrange(10)}'",
            f"brokerName {chance.choice(['=', '<>'])} '{chance.choice('ab')}'",
            "tags IS NULL",
        ]
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 8))]
)
def test_any_filter_gives_the_rows_of_the_log(writer, out, export, opened, seed):
    """The whole log is there, too: it is the slow model of archive and rest."""
    chance = random.Random(seed)
    writer.append(orders(350))
    export(writer)
    writer.append(orders(250, start=350))
    database = opened(archive=Archive(str(out)), a=writer.root)
    for _ in range(10 if seed == 0 else 100):
        names = chance.sample(["keys", "topic", "body", "queueOffset", "msgId"], 2)
        word = chance.choice(["AND", "OR"])
        rule = f" {word} ".join(
            condition(chance) for _ in range(chance.randrange(1, 4))
        )
        asked = [
            rows(database, f"SELECT {', '.join(names)} FROM {table} WHERE {rule}")
            for table in ("everything", "messages")
        ]
        assert Counter(asked[0]) == Counter(asked[1]), rule


def test_a_statement_that_takes_too_long_is_stopped(writer, opened):
    writer.append(orders(10))
    database = opened(timeout_s=0.05, a=writer.root)
    with pytest.raises(RmqError, match=r"stopped after 0.05 s, --timeout"):
        rows(database, "SELECT sum(range) FROM range(1_000_000_000_000)")
    database.timeout_s = 60
    assert rows(database, "SELECT count(*) FROM messages") == [(10,)]
