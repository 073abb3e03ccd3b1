"""Archives of Delta and Iceberg tables, which other libraries merge and change."""

import sys
from collections import Counter
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from rmq.core.errors import ConfigError, StoreError
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.maintenance import vacuum
from rmq_spark.export.manifest import ExportLog
from rmq_spark.export.task import ExportJob
from rmq_spark.sql import tables
from rmq_spark.sql.archive import Archive
from tests.spark.exports import exporter, settings_of
from tests.spark.sql.conftest import rows
from tests.spark.stores import Sent, StoreWriter, orders

pytestmark = pytest.mark.slow
ONE = "SELECT count(*), min(keys) FROM archive WHERE topic = 'odd%|x'"


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request):
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return request.param


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture
def one(writer, out, table_format):
    """An exporter with large batches: one for each call."""
    return exporter_of(writer, out, table_format)


def exporter_of(writer, out, table_format, broker_name="a"):
    settings = replace(settings_of(table_format), broker_name=broker_name)
    return exporter(writer, out, settings=settings)


def delta_table(out):
    from deltalake import DeltaTable

    return DeltaTable(str(out))


def iceberg_table(out):
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("rmq", uri=f"sqlite:///{out}/{MANIFESTS}/iceberg.db")
    return catalog.load_table("rmq.messages")


def merge_and_forget(table_format, out, one):
    """Merge all files, and remove those that were merged."""
    if table_format == "delta":
        table = delta_table(out)
        assert table.optimize.compact()["numFilesRemoved"] > 4
        given = {"enforce_retention_duration": False, "dry_run": False}
        assert len(table.vacuum(retention_hours=0, **given)) > 4
        return
    assert one.compact() > 4
    table = iceberg_table(out)
    old = [each.snapshot_id for each in table.snapshots()[:-1]]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    removed = vacuum(out, older_than_hours=0, now=2e12)
    assert len([path for path in removed if path.endswith(".parquet")]) > 4


def remove_one(table_format, out):
    """Another program removes a row."""
    if table_format == "delta":
        delta_table(out).delete("keys = 'k7'")
    else:
        iceberg_table(out).delete("keys == 'k7'")


def counts(database, table):
    return Counter(key for (key,) in rows(database, f"SELECT keys FROM {table}"))


def expected(count):
    return Counter(f"k{i}" for i in range(count))


def export_in_turns(writer, one, first=0, turns=3):
    for turn in range(first, first + turns):
        writer.append(orders(100, start=100 * turn))
        one.run_batch()


def test_files_that_were_merged_and_removed_are_not_asked_for(
    writer, out, one, table_format, opened
):
    writer.append([Sent(b"odd%|x", body=b"b", properties=b"KEYS\1odd\2")])
    export_in_turns(writer, one)
    database = opened(archive=Archive(str(out)), a=writer.root)
    all_keys = expected(300) + Counter(["odd"])
    assert counts(database, "archive") == all_keys
    merge_and_forget(table_format, out, one)
    assert counts(database, "archive") == all_keys
    assert counts(database, "archive WHERE brokerName = 'a'") == all_keys
    assert rows(database, ONE) == [(1, "odd")]
    some = "physicalOffset BETWEEN 20000 AND 50000 AND topic <> 'orders_02'"
    assert counts(database, f"archive WHERE {some}") == counts(
        database, f"messages WHERE {some}"
    )
    export_in_turns(writer, one, first=3)
    writer.append(orders(50, start=600))
    assert counts(database, "everything") == expected(650) + Counter(["odd"])


def test_a_row_that_another_program_removed_stays_removed(
    writer, out, one, table_format, opened
):
    export_in_turns(writer, one)
    database = opened(archive=Archive(str(out)), a=writer.root)
    assert counts(database, "everything") == expected(300)
    remove_one(table_format, out)
    writer.append(orders(50, start=300))
    assert counts(database, "everything") == expected(350) - Counter(["k7"])


def test_a_batch_without_its_manifest_is_in_the_archive_once(
    writer, out, one, monkeypatch, opened, tmp_path, table_format
):
    """The table has it, so the log goes on behind it; also of a new broker."""
    export_in_turns(writer, one)
    other = StoreWriter(tmp_path / "other", 100_000)
    other.append(orders(100, start=400))
    writer.append(orders(100, start=300))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        for each in (one, exporter_of(other, out, table_format, "b")):
            with pytest.raises(ZeroDivisionError):
                each.run_batch()
    other.append(orders(100, start=500))
    database = opened(archive=Archive(str(out)), a=writer.root, b=other.root)
    assert counts(database, "archive") == expected(500)
    assert counts(database, "everything") == expected(600)


def test_rows_of_several_brokers_that_were_merged_have_no_name(
    writer, out, tmp_path, opened
):
    pytest.importorskip("deltalake")
    other = StoreWriter(tmp_path / "other", 100_000)
    brokers = {"a": writer, "b": other}
    for number, (name, each) in enumerate(brokers.items()):
        each.append(orders(100, start=100 * number))
        exporter_of(each, out, "delta", name).run_batch()
    stores = {name: each.root for name, each in brokers.items()}
    database = opened(archive=Archive(str(out)), **stores)
    by_broker = "SELECT brokerName, count(*) FROM archive GROUP BY 1 ORDER BY 1"
    assert rows(database, by_broker) == [("a", 100), ("b", 100)]
    delta_table(out).optimize.compact()
    assert rows(database, by_broker) == [(None, 200)]
    assert counts(database, "everything") == expected(200)


def test_a_table_without_files_is_empty(writer, out, one, opened):
    writer.append([Sent(b"RMQ_SYS_TRANS_HALF_TOPIC", body=b"half")])
    one.run_batch()
    database = opened(archive=Archive(str(out)), a=writer.root)
    assert counts(database, "everything") == Counter()
    export_in_turns(writer, one)
    assert counts(database, "everything") == expected(300)


def test_a_table_that_cannot_be_read_here_is_refused(
    writer, out, one, table_format, opened, monkeypatch
):
    export_in_turns(writer, one)
    if table_format == "delta":
        from deltalake import TableFeatures

        delta_table(out).alter.add_feature(
            TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
        )
        problem = "deletionVectors"
    else:
        task = SimpleNamespace(delete_files=[1])
        scan = SimpleNamespace(plan_files=lambda: [task])
        monkeypatch.setattr("pyiceberg.table.Table.scan", lambda _: scan)
        problem = "rewrite its data files"
    with pytest.raises(StoreError, match=problem):
        opened(archive=Archive(str(out)), a=writer.root)


def test_a_sentence_says_which_library_is_missing(
    writer, out, one, table_format, opened, monkeypatch
):
    export_in_turns(writer, one, turns=1)
    package = {"delta": "deltalake", "iceberg": "pyiceberg"}[table_format]
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=r"pip install .(deltalake|pyiceberg)"):
        opened(archive=Archive(str(out)), a=writer.root)


def test_files_outside_of_the_folder_are_refused(writer, out, one, table_format):
    if table_format == "delta":
        pytest.skip("deltalake has its paths below the table")
    export_in_turns(writer, one, turns=1)
    settings = one.log.last_manifest().settings
    table = tables.table_of(ExportJob(str(out), settings))
    table.load_version()
    with pytest.raises(StoreError, match="not in its folder"):
        table._path("s3://elsewhere/x.parquet")
