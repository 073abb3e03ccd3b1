"""Finding files, and testing the lock without taking it."""

import subprocess
import sys

import pytest

from rmq.core.errors import StoreError
from rmq.tools.store_files import StoreFiles, segment_paths

CHILD = """
import sys
from pathlib import Path
from rmq.store.data_dir import is_locked
print(is_locked(Path(sys.argv[1])))
"""


def ask_elsewhere(root):
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(root)],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return done.stdout.strip() == "True"


def test_asking_for_the_lock_keeps_it(open_store):
    store = open_store()
    root = store.directory.root
    assert ask_elsewhere(root)
    assert StoreFiles(root).is_in_use
    assert ask_elsewhere(root), "asking in the holder's process gave it away"
    store.close()
    assert not StoreFiles(root).is_in_use
    assert not ask_elsewhere(root)


def test_a_store_without_a_lock_file_is_free(filled):
    (filled / "lock").unlink()
    assert not StoreFiles(filled).is_in_use


def test_only_offsets_are_segments(tmp_path):
    for name in ("00000000000000000000", "00000000000000000100", "notes.txt", "12"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "00000000000000000200").touch()
    assert [int(path.name) for path in segment_paths(tmp_path)] == [0, 100]
    assert segment_paths(tmp_path / "absent") == []


def test_log_files_of_two_sizes_are_refused(filled):
    with (filled / "commitlog" / f"{65536:020d}").open("ab") as file:
        file.write(b"x")
    with (
        pytest.raises(StoreError, match="65537 bytes"),
        StoreFiles(filled).open_log(),
    ):
        pass


def test_the_log_may_be_elsewhere(filled, tmp_path):
    (filled / "commitlog").rename(tmp_path / "log")
    store = StoreFiles(filled, [tmp_path / "log"])
    with store.open_log() as files:
        assert [file.base_offset for file in files][:2] == [0, 65536]
        assert not files[0].writable
