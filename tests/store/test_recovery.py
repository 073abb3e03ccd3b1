"""What a start makes of damaged stores; one clause of a contract each."""

import shutil

import pytest

from rmq._fastpath import decode_record
from rmq.errors import CorruptLog
from rmq.store.results import GetStatus, PutStatus


def all_bodies(store, queue_id=0):
    found = []
    for offset in range(store.max_offset("Topic", queue_id)):
        result = store.get("Topic", queue_id, offset, 1)
        assert result.status is GetStatus.FOUND
        record = decode_record(result.body)
        assert record.queue_offset == offset
        found.append(record.body)
    return found


def crash(store):
    """End as a kill does: what was written is in the files, `abort` stays."""
    text = store.directory.abort._path.read_text()
    store.close()
    store.directory.abort._path.write_text(text)


def fill(store, make_message, count=100, size=900):
    sent = [n.to_bytes(2, "big") * (size // 2) for n in range(count)]
    results = [store.put(make_message(body)) for body in sent]
    assert {result.status for result in results} == {PutStatus.PUT_OK}
    return sent, results


def damage(store, offset, data):
    size = store.config.commit_log_file_size
    base = offset // size * size
    with (store.directory.commit_log / f"{base:020d}").open("r+b") as file:
        file.seek(offset - base)
        file.write(data)


@pytest.mark.parametrize(
    ("at", "data", "reason"),
    [
        (500, b"\xff\xfe\xfd\xfc", "bad crc"),
        (0, b"\x7f\xff\xff\xff", "short"),
        (4, b"\0\0\0\1", "bad magic"),
        (28, b"\0\0\0\0\0\0\0\1", "bad offset"),
    ],
)
def test_a_torn_record_ends_the_log(open_store, make_message, at, data, reason):
    store = open_store()
    sent, results = fill(store, make_message)
    cut = results[90].physical_offset
    crash(store)
    damage(store, cut + at, data)
    again = open_store()
    assert again.end_offset == cut
    assert all_bodies(again) == sent[:90]
    [told] = again.recovery.cuts
    assert (told.offset, told.reason) == (cut, reason)
    assert again.directory.cut.joinpath(f"{cut:020d}").exists()
    assert again.put(make_message(b"next")).queue_offset == 90
    crash(again)
    assert all_bodies(open_store()) == [*sent[:90], b"next"]


def test_a_short_write_ends_the_log(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 20)
    last = results[-1]
    crash(store)
    damage(
        store,
        last.physical_offset + 300,
        bytes(last.end_offset - last.physical_offset - 300),
    )
    again = open_store()
    assert again.end_offset == last.physical_offset
    assert all_bodies(again) == sent[:-1]


def test_queues_are_rebuilt_after_a_crash(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message)
    crash(store)
    for path in store.directory.consume_queue.rglob("0*"):
        if path.is_file():
            path.unlink()
    again = open_store()
    assert all_bodies(again) == sent
    assert again.recovery.entries_added == len(sent)
    assert "100 queue entries added" in again.recovery.lines()[0]


def test_a_lost_page_of_a_queue_is_refilled(open_store, make_message):
    """The entries behind the hole are older than what may be written there next."""
    store = open_store()
    sent, results = fill(store, make_message)
    crash(store)
    folder = store.directory.consume_queue / "Topic" / "0"
    with (folder / f"{1800:020d}").open("r+b") as file:
        file.write(bytes(100))
    cut = results[92].physical_offset
    damage(store, cut + 4, bytes(4))
    again = open_store()
    assert all_bodies(again) == sent[:92]
    again.put(make_message(b"next"))
    again.close()
    last = open_store()
    assert all_bodies(last) == [*sent[:92], b"next"]
    assert not last.recovery.cuts


def test_a_queue_ahead_of_the_log_is_cut(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 40)
    crash(store)
    end = results[5].physical_offset
    damage(store, end, bytes(65536 - end))
    again = open_store()
    assert again.end_offset == results[5].physical_offset
    assert all_bodies(again) == sent[:5]
    assert again.recovery.entries_dropped == 35
    queue_files = sorted((again.directory.consume_queue / "Topic" / "0").iterdir())
    assert [path.stat().st_size for path in queue_files] == [200]


def test_log_files_gone_means_an_empty_store(open_store, make_message):
    store = open_store()
    fill(store, make_message, 15)
    store.close()
    for path in store.directory.commit_log.iterdir():
        path.unlink()
    again = open_store()
    assert (again.end_offset, again.max_offset("Topic", 0)) == (0, 0)
    assert again.put(make_message()).physical_offset == 0


def test_a_file_of_another_size_stops_the_start(open_store, make_message):
    store = open_store()
    fill(store, make_message, 2)
    store.close()
    with pytest.raises(CorruptLog, match="65536"):
        open_store(commit_log_file_size=1 << 17)
    assert open_store().max_offset("Topic", 0) == 2


def test_an_empty_last_file_is_removed(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message, 3)
    crash(store)
    (store.directory.commit_log / f"{65536:020d}").touch()
    assert all_bodies(open_store()) == sent


def test_the_checkpoint_is_never_ahead(open_store, make_message):
    store = open_store()
    fill(store, make_message, 10)
    store.save_checkpoint()
    assert store._checkpoint.confirm_offset == 0
    assert store._checkpoint.logics_physical_offset == 0
    store.flush_queues(thorough=True)
    assert store._checkpoint.confirm_offset == store.end_offset
    assert store._checkpoint.logics_physical_offset == store.end_offset


def test_bytes_behind_the_end_are_zero(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 20)
    crash(store)
    damage(store, results[10].physical_offset + 4, bytes(4))
    again = open_store()
    data = (again.directory.commit_log / f"{0:020d}").read_bytes()
    assert len(data) == 65536
    assert not data[again.end_offset :].strip(b"\0")


def drop_queues(store):
    shutil.rmtree(store.directory.consume_queue)


@pytest.mark.parametrize("old", [5, 25])
def test_a_topic_that_was_deleted_begins_again(open_store, make_message, old):
    """Older records of the same name are still in the log; they must not win."""
    store = open_store()
    fill(store, make_message, old)
    assert store.delete_topic("Topic") == 1
    store.put(make_message(b"new 0"))
    store.put(make_message(b"new 1"))
    crash(store)
    drop_queues(store)
    again = open_store()
    assert all_bodies(again) == [b"new 0", b"new 1"]
    assert again.recovery.entries_dropped == old
    assert again.put(make_message(b"new 2")).queue_offset == 2
    crash(again)
    assert all_bodies(open_store()) == [b"new 0", b"new 1", b"new 2"]
