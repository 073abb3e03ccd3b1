"""What a store can promise: refusals by their kind, whatever their text."""

import errno
import shutil
import threading
from types import SimpleNamespace

import pytest

from rmq.store.commit_log import CommitLog
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from rmq.store.results import PutStatus

TEXTS = ["the disk is odd", "no disk space", "flushing x failed: Input/output error"]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("kind", RefusalKind)
def test_a_kind_decides_what_resumes_and_whether_abort_stays(
    open_store, make_message, kind, text
):
    store = open_store()
    store.durability.refuse(kind, text)
    assert store.durability.refuse_reason == text
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.disk.update_refusal()
    assert store.durability.is_writable == (kind is RefusalKind.DISK_FULL)
    store.durability.refuse(kind, text)
    store.close()
    assert store.directory.abort.is_set == (kind is not RefusalKind.DISK_FULL)


def test_a_worse_refusal_replaces_a_lesser_one_only(open_store, caplog):
    durability = open_store().durability
    for kind in (RefusalKind.WRITE_FAILED, *RefusalKind, RefusalKind.DISK_FULL):
        durability.refuse(kind, kind.name)
    assert durability.refusal == (RefusalKind.FLUSH_FAILED, "FLUSH_FAILED")
    assert caplog.messages == [
        "messages are refused: WRITE_FAILED",
        "messages are refused: FLUSH_FAILED",
    ]


def test_a_nearly_full_disk_is_refused_by_its_ratio(open_store, make_message):
    store = open_store(disk_warning_ratio=100)
    store.disk.used_ratio = lambda: 100
    store.disk.update_refusal()
    assert store.durability.refuse_reason.endswith("is 100 % full")
    store.disk.used_ratio = lambda: 99
    store.disk.update_refusal()
    assert store.writes.put(make_message()).status is PutStatus.PUT_OK


def test_a_disk_that_does_not_tell_its_size_is_not_full(open_store, monkeypatch):
    """Such as ramfs."""
    nothing = SimpleNamespace(total=0, used=0, free=0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: nothing)
    store = open_store()
    store.disk.update_refusal()
    assert store.disk.used_ratio() == 0
    assert store.durability.is_writable


def test_a_closed_store_says_so(open_store):
    store = open_store()
    assert (store.durability.is_writable, store.durability.refuse_reason) == (True, "")
    store.close()
    assert not store.durability.is_writable
    assert store.durability.refuse_reason == "the store is closed"
    store.durability.resume()
    assert not store.durability.is_writable


def test_room_on_the_disk_does_not_open_a_closed_store(open_store):
    store = open_store()
    store.durability.refuse(RefusalKind.DISK_FULL, "full")
    store.close()
    store.durability.resume()
    assert not store.durability.is_writable


def test_a_flush_that_fails_beside_a_disk_check_is_not_forgotten(
    open_store, make_message, monkeypatch
):
    """Both are workers: a full disk that ends must not take the failure away."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.writes.put(make_message())
    durability, go_on = store.durability, threading.Event()

    def broken(_self, _durable):
        raise OSError(errno.EIO, "Input/output error", "the log")

    monkeypatch.setattr(CommitLog, "flush", broken)

    def check_again_and_again():
        while not go_on.is_set():
            durability.refuse(RefusalKind.DISK_FULL, "full")
            durability.resume()

    watch = threading.Thread(target=check_again_and_again)
    watch.start()
    try:
        with pytest.raises(Exception, match="flushing the log failed"):
            durability.flush()
    finally:
        go_on.set()
        watch.join(10)
    assert durability.has_flush_failed
    assert not durability.is_writable
