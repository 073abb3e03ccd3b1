"""Pulls of messages that left the page cache, on a file system with a disk behind it.

The thread that serves them must not wait for the disk: the store is never asked in a
way that may.
"""

import pytest

from rmq.protocol.codes import ResponseCode
from rmq.protocol.records import decode_stored
from tests.pages import drop_pages

COUNT = 400
STORE = {"commit_log_file_size": 1 << 20, "max_message_size": 20_000}


@pytest.fixture
def cold_caller(disk_path, open_broker, make_caller_of):
    """A broker that was started after the pages of its store were dropped."""
    store = {"root_dir": str(disk_path / "cold"), **STORE}
    caller = make_caller_of(open_broker(store=store))
    for n in range(COUNT):
        caller.send(body=bytes([n % 251]) * 10_000, properties=f"n\x01{n}\x02")
    caller.broker.store.close()
    drop_pages(path for path in (disk_path / "cold").rglob("0*") if path.is_file())
    broker = open_broker(store=store, enable_property_filter=True)
    if broker.store.log.files.files[0].is_resident(0, 1 << 19):
        pytest.skip("this file system keeps all pages in memory")
    return make_caller_of(broker)


@pytest.fixture
def waits(cold_caller, monkeypatch):
    """What each read of the store was told about waiting."""
    store, found = cold_caller.broker.store, []
    get = store.reads.get

    def spy(*arguments, may_wait=True, **named):
        found.append(may_wait)
        return get(*arguments, may_wait=may_wait, **named)

    monkeypatch.setattr(store.reads, "get", spy)
    return found


def read_all(caller, **more):
    """Pull from the beginning to the end; the bodies."""
    offset, bodies = 0, []
    while (
        answer := caller.pull(offset=offset, **more)
    ).code != ResponseCode.PULL_NOT_FOUND:
        assert answer.code in (0, 20), answer
        bodies += [record.body for record in decode_stored(answer.body)]
        offset = int(answer.ext_fields["nextBeginOffset"])
    return bodies


def test_the_disk_is_waited_for_in_threads_only(cold_caller, waits):
    assert read_all(cold_caller) == [bytes([n % 251]) * 10_000 for n in range(COUNT)]
    assert len(waits) > COUNT // 32 + 3, "nothing was cold"
    assert not any(waits)


def test_a_selector_reads_on_without_waiting(cold_caller, waits):
    sql = {"expressionType": "SQL92", "subscription": "n = 333"}
    assert read_all(cold_caller, **sql) == [bytes([333 % 251]) * 10_000]
    assert len(waits) > COUNT // 32 + 3, "nothing was cold"
    assert not any(waits)
