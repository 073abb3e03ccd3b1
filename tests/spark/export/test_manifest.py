import json

import msgspec
import pytest
from msgspec.structs import replace

from rmq.core.errors import StoreError
from rmq_spark.export.disk_folder import DiskFolder
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.manifest import (
    HINT_EVERY,
    DataFile,
    ExportLog,
    ExportPlan,
    LastRecord,
    LogRange,
    Manifest,
    MergePlan,
    Settings,
    _crc_of,
    brokers_of,
    table_files,
)

SETTINGS = Settings("broker-a", "parquet", ["topic"], "map", False)
LAST = LastRecord(90, 10, 7)
FILE = DataFile("topic=T/dt=D/f.parquet", "T", "D", 1, 2, 3, 4, 5, 6, {"0": [1, 2]})
BATCH = {
    "seq": 0, "settings": SETTINGS, "store": "/s", "start": 0, "end": 100, "last": LAST,
}  # fmt: skip
PLAN = ExportPlan(**BATCH, ranges=[LogRange(0, 0, 100, True)])
MERGE = MergePlan(**BATCH, merges=[["a", "b", "c"]])
MANIFEST = Manifest(**BATCH, added=[FILE], removed=[], lost=[(5, 6)])


@pytest.fixture
def log(tmp_path):
    log = ExportLog(DiskFolder(tmp_path / "out"), "broker-a")
    log.prepare()
    return log


@pytest.fixture
def chain(tmp_path):
    return tmp_path / "out" / MANIFESTS / "broker-a"


def next_manifest(number, **changes):
    start = 100 * number
    return replace(MANIFEST, seq=number, start=start, end=start + 100, **changes)


def test_plans_and_manifests_come_back(log):
    assert log.last_manifest() is None
    assert log.pending() is None
    is_written = log.write_plan(PLAN)
    assert is_written
    assert log.pending() == PLAN
    is_written = log.write_manifest(MANIFEST)
    assert is_written
    assert log.pending() is None
    assert log.last_manifest() == MANIFEST
    is_written = log.write_plan(replace(MERGE, seq=1, last=None))
    assert is_written
    assert log.pending() == replace(MERGE, seq=1, last=None)


def test_a_plan_of_an_older_version_is_read(log, chain):
    """It named the ranges and the merges of either kind."""
    older = msgspec.to_builtins(MERGE) | {"ranges": []}
    text = json.dumps(older | {"format": 1, "crc": _crc_of(older)})
    chain.mkdir()
    (chain / f"{0:020d}.plan").write_text(text)
    assert log.pending() == MERGE


def test_the_first_of_two_writers_wins(log):
    is_written = log.write_plan(PLAN)
    assert is_written
    is_written = log.write_plan(replace(PLAN, end=200))
    assert not is_written
    assert log.pending() == PLAN
    is_written = log.write_manifest(MANIFEST)
    assert is_written
    is_written = log.write_manifest(replace(MANIFEST, end=200))
    assert not is_written
    assert log.last_manifest() == MANIFEST


def test_nothing_but_named_files_is_left_or_looked_at(log, chain):
    log.write_plan(PLAN)
    log.write_plan(PLAN)
    assert [path.suffix for path in chain.iterdir()] == [".plan"]
    (chain / f"{0:020d}.json.host-1-ab.tmp").write_text("half a manif")
    (chain / "notes.json").write_text("?")
    assert log.last_manifest() is None


def test_files_are_added_and_removed(log):
    other = replace(FILE, path="other")
    log.write_manifest(MANIFEST)
    log.write_manifest(next_manifest(1, added=[other]))
    assert set(log.files()) == {FILE.path, "other"}
    merged = replace(FILE, path="merged")
    log.write_manifest(next_manifest(2, added=[merged], removed=[FILE.path, "other"]))
    assert log.files() == {"merged": merged}


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace('"end": 100', '"end": 200'),
        lambda text: text[:-5],
        lambda _: "[]",
        lambda _: "",
        lambda text: json.dumps(json.loads(text) | {"format": 2}),
    ],
)
def test_an_edited_manifest_is_refused(log, chain, edit):
    log.write_manifest(MANIFEST)
    path = chain / f"{0:020d}.json"
    path.write_text(edit(path.read_text()))
    with pytest.raises(StoreError, match=f"{path}.*(edited|cannot be read)"):
        log.last_manifest()


def test_a_missing_manifest_is_noticed(log, chain):
    for number in range(3):
        log.write_manifest(next_manifest(number))
    assert len(log.read_manifests()) == 3
    (chain / f"{1:020d}.json").unlink()
    with pytest.raises(StoreError, match="was removed or changed"):
        log.read_manifests()


def test_a_folder_with_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(StoreError, match="neither empty nor an export"):
        ExportLog(DiskFolder(tmp_path), "broker-a").prepare()


def test_manifests_outside_of_the_folder_of_a_broker_are_refused(log):
    """Else a table of an older version would get all its messages again."""
    (log.folder.create(f"{MANIFESTS}/{0:020d}.json", b"{}"))
    with pytest.raises(StoreError, match=rf"older rmq-spark.*{MANIFESTS}/broker-a"):
        log.prepare()


def test_each_broker_has_a_chain_of_its_own(log):
    other = ExportLog(log.folder, "b/c%")
    log.write_manifest(MANIFEST)
    assert other.last_manifest() is None
    theirs = replace(MANIFEST, added=[replace(FILE, path="theirs")])
    is_written = other.write_manifest(theirs)
    assert is_written
    assert log.last_manifest() == MANIFEST
    assert brokers_of(log.folder) == ["b/c%", "broker-a"]
    assert set(table_files(log.folder)) == {FILE.path, "theirs"}


def test_a_hint_shortens_the_listing_and_decides_nothing(log, chain, monkeypatch):
    for number in range(HINT_EVERY + 2):
        log.write_manifest(next_manifest(number))
    hinted = f"{HINT_EVERY - 1:020d}.json"
    assert (chain / "hint").read_text() == hinted
    listed, real = [], DiskFolder.list_files

    def names(folder, path, after=""):
        listed.append(after)
        return real(folder, path, after)

    monkeypatch.setattr(DiskFolder, "list_files", names)
    for text, begins in (
        (hinted, hinted),
        (f"{9_999:020d}.json", ""),
        ("../../../etc/passwd", ""),
    ):
        (chain / "hint").write_text(text)
        again = ExportLog(log.folder, "broker-a")
        assert again.last_manifest().seq == HINT_EVERY + 1
        assert again.pending() is None
        assert listed == [begins, f"{HINT_EVERY + 1:020d}.json"]
        listed.clear()
