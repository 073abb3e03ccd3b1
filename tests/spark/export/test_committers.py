"""Tables of other libraries: two hosts with one plan, kills at each step."""

import contextlib
import random
import subprocess
import sys
from collections import Counter

import pyarrow as pa
import pytest

from rmq.core.errors import StoreError
from rmq_spark.export import committers
from rmq_spark.export import exporter as exporter_module
from rmq_spark.export.disk_folder import DiskFolder
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.maintenance import vacuum
from rmq_spark.export.manifest import ExportLog
from tests.spark.exports import (
    Killed,
    export_all,
    exporter,
    killing,
    log_of,
    settings_of,
)
from tests.spark.stores import Sent, orders


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def delta_table(out):
    return pytest.importorskip("deltalake").DeltaTable(str(out))


def iceberg_table(out):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog("rmq", uri=f"sqlite:///{out}/{MANIFESTS}/iceberg.db")
    return catalog.load_table("rmq.messages")


def keys_of(table_format, out):
    """How often each key is in the table, read by its own library."""
    if table_format == "delta":
        rows = delta_table(out).to_pyarrow_table(columns=["keys"])
    else:
        rows = iceberg_table(out).scan(selected_fields=("keys",)).to_arrow()
    return Counter(rows["keys"].to_pylist())


def expected(count):
    return Counter(f"k{i}" for i in range(count))


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request):
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    return request.param


def before_a_commit(monkeypatch, table_format, act, times=1):
    """Call `act` after a committer has looked at its table and before it commits."""
    if table_format == "delta":
        from deltalake import DeltaTable as owner
    else:
        from pyiceberg.catalog.sql import SqlCatalog as owner
    method = {"delta": "create_write_transaction", "iceberg": "commit_table"}
    real = getattr(owner, method[table_format])
    waiting, running = [act] * times, []

    def commit_it(*args, **kwargs):
        if waiting and not running:
            running.append(waiting.pop())
            running[0]()
            running.clear()
        return real(*args, **kwargs)

    monkeypatch.setattr(owner, method[table_format], commit_it)


def append_a_row(table_format, out):
    """Another program writes to the table."""
    row = {"keys": ["other"], "topic": ["other"]}
    if table_format == "iceberg":
        return iceberg_table(out).append(pa.table(row))
    import deltalake

    rows = pa.table(row | {"dt": ["2025-11-13"]})
    deltalake.write_deltalake(str(out), rows, mode="append", schema_mode="merge")


@pytest.mark.slow
def test_two_hosts_with_one_plan_add_its_rows_once(
    writer, out, monkeypatch, table_format
):
    """The second looks at the table before the first commits, and commits after it."""
    # flock holds on one host only
    monkeypatch.setattr(DiskFolder, "commit_lock", lambda _: contextlib.nullcontext())
    settings = settings_of(table_format)
    writer.append(orders(300))
    export_all(exporter(writer, out, settings=settings))
    writer.append(orders(300, start=300))
    done = []

    def rival():
        done.append(exporter(writer, out, settings=settings).run_batch())

    before_a_commit(monkeypatch, table_format, rival)
    manifest = exporter(writer, out, settings=settings).run_batch()
    assert done == [manifest]
    assert keys_of(table_format, out) == expected(600)
    assert log_of(out).last_manifest() == manifest


@pytest.mark.slow
def test_two_hosts_that_make_a_catalog_at_once(writer, out, monkeypatch):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    monkeypatch.setattr(DiskFolder, "commit_lock", lambda _: contextlib.nullcontext())
    writer.append(orders(300))
    real, waiting = sql.SqlCatalog.namespace_exists, [True]

    def rival_after_the_look(*args):
        is_there = real(*args)
        if waiting and not is_there:
            waiting.clear()
            exporter(writer, out, settings=settings_of("iceberg")).run_batch()
        return is_there

    monkeypatch.setattr(sql.SqlCatalog, "namespace_exists", rival_after_the_look)
    export_all(exporter(writer, out, settings=settings_of("iceberg")))
    assert not waiting
    assert keys_of("iceberg", out) == expected(300)


@pytest.mark.slow
def test_pyiceberg_repeats_no_commit_of_an_older_table(writer, out):
    pytest.importorskip("pyiceberg")
    writer.append(orders(100))
    export_all(exporter(writer, out, settings=settings_of("iceberg")))
    with iceberg_table(out).transaction() as transaction:
        transaction.remove_properties("commit.retry.num-retries")
    writer.append(orders(100, start=100))
    export_all(exporter(writer, out, settings=settings_of("iceberg")))
    assert iceberg_table(out).properties["commit.retry.num-retries"] == "0"


@pytest.mark.slow
def test_other_writers_of_a_table_delay_an_export(
    writer, out, monkeypatch, table_format
):
    settings = settings_of(table_format)
    writer.append(orders(300))
    export_all(exporter(writer, out, settings=settings))
    writer.append(orders(300, start=300))
    with monkeypatch.context() as patch:
        before_a_commit(patch, table_format, lambda: append_a_row(table_format, out), 3)
        export_all(exporter(writer, out, settings=settings))
    others = keys_of(table_format, out) - expected(600)
    assert set(others) == {"other"}
    assert keys_of(table_format, out) - others == expected(600)


@pytest.mark.slow
def test_a_table_that_others_write_all_the_time_ends_an_export(
    writer, out, monkeypatch
):
    pytest.importorskip("pyiceberg")
    settings = settings_of("iceberg")
    writer.append(orders(300))
    export_all(exporter(writer, out, settings=settings))
    writer.append(orders(300, start=300))
    monkeypatch.setattr(committers, "MAX_ATTEMPTS", 3)
    with monkeypatch.context() as patch:
        before_a_commit(patch, "iceberg", lambda: append_a_row("iceberg", out), 3)
        with pytest.raises(StoreError, match="the commit failed 3 times"):
            export_all(exporter(writer, out, settings=settings))
    export_all(exporter(writer, out, settings=settings))
    assert keys_of("iceberg", out) - Counter({"other": 3}) == expected(600)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_step_loses_and_repeats_nothing_in_tables(
    writer, out, monkeypatch, table_format, seed
):
    chance = random.Random(seed)
    settings = settings_of(table_format)
    count = kills = 0
    for _ in range(3):
        more = chance.randrange(100, 700)
        writer.append(orders(more, start=count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format)
            try:
                export_all(exporter(writer, out, settings=settings))
            except Killed:
                kills += 1
    export_all(exporter(writer, out, settings=settings))
    assert kills
    assert keys_of(table_format, out) == expected(count)


def test_a_delta_table_is_read_by_its_own_library(writer, out, monkeypatch):
    pytest.importorskip("deltalake")
    settings = settings_of("delta")
    writer.append(orders(900))
    writer.append([Sent(b"odd%|x", body=b"b", properties=b"KEYS\1k900\2")])
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out, settings=settings).run_batch()
    export_all(exporter(writer, out, settings=settings))
    table = delta_table(out)
    assert (
        table.transaction_version("rmq-follow:broker-a")
        == log_of(out).last_manifest().seq
    )
    rows = table.to_pyarrow_table()
    assert Counter(rows["keys"].to_pylist()) == expected(901)
    assert "odd%|x" in rows.column("topic").to_pylist()
    with pytest.raises(StoreError, match="deltalake merges"):
        exporter(writer, out, settings=settings).optimize()


@pytest.mark.slow
def test_an_iceberg_table_is_read_by_its_own_library(writer, out, monkeypatch):
    pytest.importorskip("pyiceberg")
    settings = settings_of("iceberg")
    writer.append(orders(900))
    with monkeypatch.context() as patch:
        patch.setattr(ExportLog, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            exporter(writer, out, settings=settings).run_batch()
    export_all(exporter(writer, out, settings=settings))
    rows = iceberg_table(out).scan().to_arrow()
    assert Counter(rows["keys"].to_pylist()) == expected(900)
    assert Counter(rows.column("topic").to_pylist())["orders_01"] == 225


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_kill_in_an_export_that_compacts_loses_and_repeats_nothing(
    writer, out, monkeypatch, table_format, seed
):
    chance = random.Random(seed)
    settings = settings_of(table_format)
    count = kills = 0
    for _ in range(4):
        more = chance.randrange(100, 700)
        writer.append(orders(more, start=count))
        count += more
        with monkeypatch.context() as patch:
            killing_a_merge(patch, chance, table_format)
            try:
                one = exporter(writer, out, settings=settings)
                export_all(one)
                one.compact()
            except Killed:
                kills += 1
    one = exporter(writer, out, settings=settings)
    export_all(one)
    while one.compact():
        pass
    assert kills
    assert keys_of(table_format, out) == expected(count)
    # snapshots still name what was merged, and deltalake has names of its own
    removed = vacuum(out, older_than_hours=0, now=2e12)
    assert [path for path in removed if not path.endswith(".tmp")] == []
    assert keys_of(table_format, out) == expected(count)
    assert len(files_of(table_format, out)) == 4


@pytest.mark.slow
def test_two_that_merge_the_same_files_do_it_once(writer, out, monkeypatch):
    """deltalake 1.6 alone accepts both, and each row is there twice."""
    pytest.importorskip("deltalake")
    from deltalake.table import TableOptimizer

    settings = settings_of("delta")
    for turn in range(2):
        writer.append(orders(50, start=50 * turn))
        export_all(exporter(writer, out, settings=settings))
    one, rival = (exporter(writer, out, settings=settings) for _ in range(2))
    rival.run_batch()
    real, waiting, merged = TableOptimizer.compact, [rival], []

    def rival_first(*args, **kwargs):
        while waiting:
            merged.append(waiting.pop().compact())
        return real(*args, **kwargs)

    monkeypatch.setattr(TableOptimizer, "compact", rival_first)
    merged.append(one.compact())
    assert merged == [8, 0]
    assert keys_of("delta", out) == expected(100)


COMPACTOR = """
import sys
from types import SimpleNamespace
from tests.spark.exports import exporter, settings_of
store, out = sys.argv[1:]
print("ready", flush=True)
for _ in sys.stdin:
    one = exporter(SimpleNamespace(root=store), out, settings=settings_of("delta"))
    print(one.compact(), flush=True)
"""


@pytest.mark.slow
def test_processes_that_merge_at_once_lose_and_repeat_nothing(writer, out):
    pytest.importorskip("deltalake")
    settings, merged = settings_of("delta"), Counter()
    command = [sys.executable, "-c", COMPACTOR, str(writer.root), str(out)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with contextlib.ExitStack() as stack:
        both = [stack.enter_context(subprocess.Popen(command, **pipes)) for _ in "ab"]
        for each in both:
            assert each.stdout.readline() == "ready\n"
        for turn in range(12):
            for half in range(2):
                writer.append(orders(50, start=100 * turn + 50 * half))
                export_all(exporter(writer, out, settings=settings))
            for each in both:
                each.stdin.write("merge\n")
                each.stdin.flush()
            for number, each in enumerate(both):
                merged[number] += int(each.stdout.readline())
            assert keys_of("delta", out) == expected(100 * (turn + 1))
    assert [each.returncode for each in both] == [0, 0]
    assert merged.total() >= 12 * 4, "files were merged in each turn"


def files_of(table_format, out):
    if table_format == "delta":
        return delta_table(out).file_uris()
    return [task.file.file_path for task in iceberg_table(out).scan().plan_files()]


def killing_a_merge(monkeypatch, chance, table_format):
    """Make a step of a merge, or of the batch before it, the last one."""
    if chance.random() < 0.3:
        killing(monkeypatch, chance, table_format)
        return
    if table_format == "delta":
        from deltalake.table import TableOptimizer

        steps = [(TableOptimizer, "compact")]
    else:
        steps = [
            (ExportLog, "write_plan"),
            (committers.IcebergCommitter, "commit"),
            (ExportLog, "write_manifest"),
            (exporter_module, "merge_files"),
        ]
    owner, name = chance.choice(steps)
    real, after = getattr(owner, name), chance.random() < 0.5

    def step(*args, **kwargs):
        is_merge = name in ("compact", "merge_files") or (
            getattr(args[1], "merges", None) or getattr(args[1], "removed", None)
        )
        if after or not is_merge:
            done = real(*args, **kwargs)
        if is_merge:
            raise Killed(name)
        return done

    monkeypatch.setattr(owner, name, step)


@pytest.mark.slow
def test_rows_that_somebody_removed_stay_removed_by_a_merge(writer, out):
    pytest.importorskip("pyiceberg")
    settings = settings_of("iceberg")
    for turn in range(2):
        writer.append(orders(100, start=100 * turn))
        export_all(exporter(writer, out, settings=settings))
    iceberg_table(out).delete("keys == 'k7'")
    one = exporter(writer, out, settings=settings)
    merged = one.compact()
    assert merged
    assert keys_of("iceberg", out) == expected(200) - Counter(["k7"])
    writer.append(orders(100, start=200))
    export_all(one)
    assert keys_of("iceberg", out) == expected(300) - Counter(["k7"])


@pytest.mark.slow
def test_a_merge_beside_another_writer_merges_once(
    writer, out, monkeypatch, table_format
):
    settings = settings_of(table_format)
    for turn in range(2):
        writer.append(orders(100, start=100 * turn))
        export_all(exporter(writer, out, settings=settings))
    one = exporter(writer, out, settings=settings)
    if table_format == "iceberg":
        before_a_commit(monkeypatch, "iceberg", lambda: append_a_row("iceberg", out))
        merged = one.compact()
        assert merged
    else:
        rival = exporter(writer, out, settings=settings)
        rival.run_batch()
        merged = one.compact()
        assert merged
        assert rival.compact() == 0
        append_a_row("delta", out)
    assert keys_of(table_format, out) - Counter(["other"]) == expected(200)
    assert export_all(one) == []
