"""Lock and abort marker."""

import subprocess
import sys

import pytest

from rmq.core.errors import StoreError

TRY_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
except OSError:
    sys.exit(3)
"""


def try_lock(path):
    return subprocess.run([sys.executable, "-c", TRY_LOCK, str(path)]).returncode


def test_another_process_is_excluded_as_by_java(open_store):
    store = open_store()
    path = store.directory.root / "lock"
    assert try_lock(path) == 3
    store.close()
    assert try_lock(path) == 0
    # Only now: closing any descriptor of the file gives up the lock of the process.
    assert path.read_bytes() == b"lock"


def test_abort_is_there_while_open(open_store):
    store = open_store()
    assert store.directory.abort.is_set
    store.close()
    assert not store.directory.abort.is_set


def test_a_failed_start_gives_the_lock_back(open_store, make_message):
    store = open_store()
    store.writes.put(make_message())
    store.close()
    with pytest.raises(StoreError):
        open_store(commit_log_file_size=1 << 17)
    assert try_lock(store.directory.root / "lock") == 0
