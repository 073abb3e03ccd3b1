"""Tables with columns of bodies: each message once, in the table or the quarantine."""

import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

pytest.importorskip("duckdb", reason="pip install 'rmq[sql]' for these tests")

from rmq.core.errors import ConfigError, StoreError
from rmq_spark.cli import main
from rmq_spark.export import committers, exporter
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.maintenance import compact_files, export_status, vacuum
from rmq_spark.export.manifest import ExportLog, brokers_of
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.store_source import StoreSource
from rmq_spark.export.task import QUARANTINE
from rmq_spark.sql.archive import Archive
from rmq_spark.sql.command import sql
from tests.spark.body_messages import FIELDS, is_bad, sent, settings_of
from tests.spark.exports import Killed, export_all, killing
from tests.spark.exports import exporter as exporting
from tests.spark.stores import Sent, StoreWriter

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "data/spark.md"
INTEGERS = ("int", "bigint")
LIBRARIES = {"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg"}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


@pytest.fixture(params=LIBRARIES)
def table_format(request):
    pytest.importorskip(LIBRARIES[request.param])
    return request.param


def table(table_format, out, quarantine=False):
    """The rows of a table, or of its quarantine, read as its users do."""
    if table_format == "parquet":
        folder = open_folder(out)
        files = {}
        for broker in brokers_of(folder):
            log = ExportLog(folder, broker)
            if quarantine:
                files |= {
                    f.path: f for m in log.read_manifests() for f in m.quarantined
                }
            else:
                files |= log.files()
        parts = [pq.read_table(out / path) for path in files]
        return pa.concat_tables(parts, promote_options="permissive")
    if table_format == "delta":
        from deltalake import DeltaTable

        where = out / QUARANTINE if quarantine else out
        return DeltaTable(str(where)).to_pyarrow_table()
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("rmq", uri=f"sqlite:///{out}/{MANIFESTS}/iceberg.db")
    name = "rmq.messages_quarantine" if quarantine else "rmq.messages"
    return catalog.load_table(name).scan().to_arrow()


def check_exact(table_format, out, count):
    good = table(table_format, out)
    assert Counter(good["keys"].to_pylist()) == Counter(
        f"k{i}" for i in range(count) if not is_bad(i)
    )
    assert [f"k{n}" for n in good["number"].to_pylist()] == good["keys"].to_pylist()
    bad = table(table_format, out, quarantine=True)
    assert Counter(bad["keys"].to_pylist()) == Counter(
        f"k{i}" for i in range(count) if is_bad(i)
    )
    assert set(bad["error"].to_pylist()) <= {
        f"column number is no {t}" for t in INTEGERS
    }
    assert set(bad["body"].to_pylist()) == {b'{"number": "none"}'}


def test_bodies_that_do_not_fit_are_in_the_quarantine_of_the_batch(writer, out):
    writer.append(sent(400))
    (manifest,) = export_all(exporting(writer, out, settings=settings_of()))
    check_exact("parquet", out, 400)
    assert manifest.misfits == sum(f.rows for f in manifest.quarantined) == 80
    assert sum(f.rows for f in manifest.added) == 320
    assert "body" not in table("parquet", out).schema.names
    assert export_status(StoreSource(writer.root), out)["quarantined"] == 80
    assert vacuum(out, older_than_hours=0, now=2e12) == []
    archived = Archive(str(out)).freeze().dataset.to_table(columns=["number", "sku"])
    assert archived.num_rows == 320


def test_misfits_stay_in_the_table_with_null(writer, out):
    writer.append(sent(100))
    settings = settings_of(on_error="null")
    (manifest,) = export_all(exporting(writer, out, settings=settings))
    assert (manifest.misfits, manifest.quarantined) == (20, [])
    rows = table("parquet", out)
    assert (rows.num_rows, rows["number"].null_count) == (100, 20)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(7))
def test_a_kill_at_any_step_loses_and_repeats_nothing(
    writer, out, monkeypatch, table_format, seed
):
    chance = random.Random(seed)
    settings = settings_of(table_format)
    count = kills = 0
    for _ in range(3):
        more = chance.randrange(100, 500)
        writer.append(sent(more, count))
        count += more
        with monkeypatch.context() as patch:
            killing(patch, chance, table_format)
            try:
                export_all(exporting(writer, out, settings=settings))
            except Killed:
                kills += 1
    export_all(exporting(writer, out, settings=settings))
    assert kills
    check_exact(table_format, out, count)


@pytest.mark.slow
def test_the_schema_grows(writer, out, table_format):
    writer.append(sent(100))
    export_all(exporting(writer, out, settings=settings_of(table_format, "number int")))
    writer.append(sent(100, 100))
    if table_format == "delta":
        wider = settings_of(table_format, FIELDS)
        with pytest.raises(StoreError, match="a Delta table cannot widen it to bigint"):
            export_all(exporting(writer, out, settings=wider))
    number = "int" if table_format == "delta" else "bigint"
    wider = settings_of(table_format, f"sku string, number {number}, late double")
    export_all(exporting(writer, out, settings=wider))
    rows = table(table_format, out)
    assert rows.num_rows == 160
    assert rows["sku"].null_count == 80
    assert rows["late"].null_count == 160
    assert (
        rows.schema.field("number").type == pa.int32()
        if number == "int"
        else pa.int64()
    )
    for fields in ("number bigint, late double, sku int", "late double, sku string"):
        with pytest.raises(StoreError, match="another schema, and column"):
            export_all(
                exporting(writer, out, settings=settings_of(table_format, fields))
            )
    archived = Archive(str(out)).freeze().dataset.to_table()
    assert archived["sku"].null_count == 80
    assert sorted(archived["number"].to_pylist()) == sorted(rows["number"].to_pylist())


@pytest.mark.slow
def test_files_of_a_schema_that_grew_are_merged(writer, out):
    for turn, fields in enumerate(["number int", FIELDS, f"{FIELDS}, late date"]):
        writer.append(sent(100, 100 * turn))
        export_all(exporting(writer, out, settings=settings_of(fields=fields)))
    one = exporting(writer, out, settings=settings_of(fields=f"{FIELDS}, late date"))
    assert compact_files(one) >= 3
    assert len(one.log.files()) == 1
    check_exact("parquet", out, 300)
    assert table("parquet", out)["sku"].null_count == 80


def test_too_many_bodies_that_do_not_fit_stop_it_before_the_commit(
    writer, out, monkeypatch
):
    monkeypatch.setattr(exporter, "FEW_BODIES", 10)
    writer.append(sent(40))
    export_all(exporting(writer, out, settings=settings_of(max_bad=0.1)))
    writer.append(sent(400, 40))
    one = exporting(writer, out, settings=settings_of(max_bad=0.1))
    with pytest.raises(StoreError, match=r"column number is no bigint\), more than"):
        export_all(one)
    assert sum(f.rows for f in one.log.files().values()) == 32
    # with another schema the same messages are planned anew, by anybody
    mended = settings_of(fields="number string, sku string", max_bad=0.1)
    with pytest.raises(StoreError, match="number is bigint and cannot become string"):
        export_all(exporting(writer, out, settings=mended))
    mended = settings_of(fields=f"{FIELDS}, more date", max_bad=0.1)
    with pytest.raises(StoreError, match=r"more than --max-bad 0\.1 allows"):
        export_all(exporting(writer, out, settings=mended))
    export_all(
        exporting(writer, out, settings=settings_of(fields=f"{FIELDS}, more date"))
    )
    check_exact("parquet", out, 440)
    removed = vacuum(out, older_than_hours=0, now=2e12)
    assert removed
    check_exact("parquet", out, 440)


def test_no_body_may_be_bad(writer, out):
    writer.append(sent(4))
    with pytest.raises(StoreError, match="1 of 4 bodies do not fit"):
        export_all(exporting(writer, out, settings=settings_of(max_bad=0.0)))


@pytest.mark.slow
def test_brokers_may_have_schemas_that_go_together(tmp_path, out, table_format):
    writers = {name: StoreWriter(tmp_path / name, 100_000) for name in "ab"}
    fields = {"a": FIELDS, "b": "number bigint, late double"}
    for turn in range(2):
        for name, writer in writers.items():
            writer.append(sent(50, 100 * turn + 50 * (name == "b")))
            settings = settings_of(table_format, FIELDS, broker=name)
            if turn or name == "a":
                settings = settings_of(table_format, fields[name], broker=name)
            if turn and name == "b":
                settings = settings_of(
                    table_format, f"{FIELDS}, late double", broker=name
                )
            export_all(exporting(writer, out, settings=settings))
    check_exact(table_format, out, 200)
    assert "late" in table(table_format, out).schema.names
    writers["a"].append(sent(10, 200))
    other = settings_of(table_format, f"{FIELDS}, late date", broker="a")
    with pytest.raises(StoreError, match="column late is date here and double there"):
        export_all(exporting(writers["a"], out, settings=other))


@pytest.mark.slow
def test_a_table_that_somebody_else_changed_is_a_sentence(writer, out):
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable, write_deltalake

    writer.append(sent(100))
    export_all(exporting(writer, out, settings=settings_of("delta")))
    rows = DeltaTable(str(out)).to_pyarrow_table()
    at = rows.schema.get_field_index("number")
    texts = rows.set_column(at, "number", rows["number"].cast(pa.string()))
    write_deltalake(
        str(out), texts, mode="overwrite", schema_mode="overwrite",
        partition_by=["topic", "dt"],
    )  # fmt: skip
    writer.append(sent(100, 100))
    with pytest.raises(StoreError, match="was changed by another program"):
        export_all(exporting(writer, out, settings=settings_of("delta")))


@pytest.mark.slow
def test_a_column_that_somebody_else_made_another_type_is_a_sentence(writer, out):
    pytest.importorskip("pyiceberg")
    from pyiceberg.catalog.sql import SqlCatalog

    writer.append(sent(100))
    export_all(exporting(writer, out, settings=settings_of("iceberg")))
    catalog = SqlCatalog("rmq", uri=f"sqlite:///{out}/{MANIFESTS}/iceberg.db")
    with catalog.load_table("rmq.messages").update_schema() as update:
        update.delete_column("number")
    with catalog.load_table("rmq.messages").update_schema() as update:
        update.union_by_name(pa.schema([pa.field("number", pa.string())]))
    writer.append(sent(100, 100))
    with pytest.raises(StoreError, match="was changed by another program"):
        export_all(exporting(writer, out, settings=settings_of("iceberg")))


@pytest.mark.slow
def test_a_catalog_has_one_table_of_a_name(writer, out, tmp_path, monkeypatch):
    pytest.importorskip("pyiceberg")
    writer.append(sent(20))
    monkeypatch.setattr(
        committers.IcebergCommitter, "_catalog", lambda _: catalog_of(tmp_path)
    )
    export_all(exporting(writer, out, settings=settings_of("iceberg")))
    other = settings_of("iceberg")
    with pytest.raises(ConfigError, match="another name, --table"):
        export_all(exporting(writer, tmp_path / "two", settings=other))
    other = replace(other, table="two")
    export_all(exporting(writer, tmp_path / "three", settings=other))
    assert catalog_of(tmp_path).load_table("rmq.two").scan().to_arrow().num_rows == 16


def catalog_of(folder):
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog(
        "rmq", uri=f"sqlite:///{folder}/all.db", warehouse=f"file://{folder}"
    )


def run(*arguments, code):
    result = CliRunner().invoke(main, ["export", "--master", "none", *arguments])
    assert result.exit_code == code, result.output
    return result.stderr


def test_the_command_makes_columns_of_bodies(writer, out):
    writer.append(sent(100))
    words = ["--store", str(writer.root), "--out", str(out), "--topics", "orders"]
    words += ["--body", "json", "--schema", FIELDS]
    assert "80 rows exported" in run(*words, code=0)
    check_exact("parquet", out, 100)


@pytest.mark.slow
def test_the_example_of_the_manual(writer, out, tmp_path):
    text = DOCUMENT.read_text().partition("### Bodies as columns\n")[2]
    blocks = re.findall(r"```(?:[a-z]+)?\n(.*?)```", text, re.DOTALL)
    options, bodies, query, rows = (
        block.replace("/var/lib/rmq/store", str(writer.root)).replace(
            "/var/lib/rmq-tables/orders", str(out)
        )
        for block in blocks[:4]
    )
    writer.append(Sent(b"Orders", body=body.encode()) for body in bodies.splitlines())
    writer.append(sent(10))
    (tmp_path / "follow.toml").write_text(options)
    follower = subprocess.Popen(
        [sys.executable, "-m", "rmq_spark.cli", "follow", "--config",
         str(tmp_path / "follow.toml")],
        stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    try:
        line = json.loads(follower.stdout.readline())
    finally:
        follower.send_signal(signal.SIGTERM)
        follower.communicate(timeout=60)
    assert (line["rows"], line["quarantined"], line["problem"]) == (2, 1, None)
    words = shlex.split(query)
    assert words[:2] == ["rmq", "sql"]
    found = CliRunner().invoke(sql, words[2:])
    assert found.output == rows


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--schema", "a int"], 2, "need --body"),
        (["--body", "json", "--schema", "a int"], 2, "--topics whose bodies have it"),
        (["--body", "json", "--topics", "t"], 2, "--body needs --schema"),
        (["--body", "avro", "--topics", "t", "--schema", "a int"], 2, "each other"),
        (["--body", "json", "--topics", "t", "--schema", "a"], 1, "'a' is not a name"),
        (["--body", "json", "--topics", "t", "--schema", "a bigin"], 1,
         "did you mean bigint?"),
        (["--body", "json", "--topics", "t", "--schema", "a int, A int"], 1,
         "declared twice"),
        (["--body", "json", "--topics", "t", "--schema", "tags int"], 1,
         "has the name of a column of messages"),
    ],
)  # fmt: skip
def test_a_wrong_declaration_is_a_sentence(writer, out, words, code, sentence):
    writer.append(sent(1))
    folders = ["--store", str(writer.root), "--out", str(out)]
    assert sentence in run(*folders, *words, code=code)
