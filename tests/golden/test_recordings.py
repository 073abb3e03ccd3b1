"""The recorded data is complete in a clone, and packed as it was recorded."""

import hashlib
import json
import os

import pytest

from tests.golden.pack import LIMIT_BYTES, pack
from tests.golden.recordings import (
    ARCHIVE,
    copy_store,
    frame_files,
    read_rows,
    unpack,
)

STORES = [
    "store-crash", "store-empty", "store-features", "store-plain",
    "store-torn-middle", "store-torn-size", "store-torn-tail",
]  # fmt: skip


def test_the_archive_is_small_enough_for_a_clone():
    assert ARCHIVE.stat().st_size <= LIMIT_BYTES


def test_every_recorded_frame_is_there(golden):
    index = json.loads((golden / "frames" / "index.json").read_text())
    assert index.keys() >= {path.stem for path in frame_files()}
    for name, counts in index.items():
        rows = read_rows(golden / "frames" / f"{name}.jsonl")
        assert len(rows) == counts["frames"], name


@pytest.mark.parametrize("name", STORES)
def test_a_store_is_unpacked_byte_for_byte(golden, name):
    tree = json.loads((golden / "stores" / f"{name}.tree.json").read_text())
    assert tree
    for row in tree:
        path = golden / "stores" / name / row["path"]
        assert path.stat().st_size == row["size"]
        if row["size"] < 10 << 20:
            assert hashlib.sha256(path.read_bytes()).hexdigest() == row["sha256"]


def test_a_copied_store_keeps_its_holes_and_its_times(golden, tmp_path):
    source = golden / "stores" / "store-features" / "timerwheel"
    copy = copy_store("store-features", tmp_path) / "timerwheel"
    before, after = source.stat(), copy.stat()
    assert after.st_size == before.st_size > 10 << 20
    assert after.st_blocks * 512 < 1 << 20
    assert after.st_mtime_ns == before.st_mtime_ns


def test_what_is_packed_comes_back(tmp_path):
    source = tmp_path / "source"
    (source / "frames").mkdir(parents=True)
    (source / "stores" / "store-a").mkdir(parents=True)
    (source / "frames" / "x.jsonl").write_text('{"raw":"AAAA"}\n')
    (source / "facts-5.5.0.json").write_text("{}")
    log = source / "stores" / "store-a" / "log"
    log.write_bytes(b"end")
    os.truncate(log, 1 << 24)
    os.utime(log, (5, 5))
    archive, again = tmp_path / "made.tar.xz", tmp_path / "again"
    assert pack(source, archive) < 4_000
    unpack(archive, again)
    assert read_rows(again / "frames" / "x.jsonl") == [{"raw": "AAAA"}]
    assert (again / "facts-5.5.0.json").read_text() == "{}"
    copied = again / "stores" / "store-a" / "log"
    assert copied.read_bytes() == log.read_bytes()
    assert copied.stat().st_mtime == 5
