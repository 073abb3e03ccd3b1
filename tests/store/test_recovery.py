"""Starts on damaged stores; each test is one clause of a crash contract."""

import shutil

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq._fastpath.log.queue_file import find_entries_end
from rmq.core.errors import CorruptLog
from rmq.store.checkpoint import Checkpoint
from rmq.store.queues import consume_queue
from rmq.store.results import GetStatus, PutStatus


def all_bodies(store, queue_id=0, end=None):
    found = []
    end = store.reads.max_offset("Topic", queue_id) if end is None else end
    for offset in range(end):
        result = store.reads.get("Topic", queue_id, offset, 1)
        assert result.status is GetStatus.FOUND
        record = decode_record(result.body)
        assert record.queue_offset == offset
        found.append(record.body)
    return found


def crash(store):
    """End as a kill does: what was written is in the files, `abort` stays."""
    mark = store.directory.root / "abort"
    text = mark.read_text()
    store.close()
    mark.write_text(text)


def fill(store, make_message, count=100, size=900):
    sent = [n.to_bytes(2, "big") * (size // 2) for n in range(count)]
    results = [store.writes.put(make_message(body)) for body in sent]
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
    assert again.log.end_offset == cut
    assert all_bodies(again) == sent[:90]
    [told] = again.recovery.cuts
    assert (told.offset, told.reason) == (cut, reason)
    assert again.directory.cut.joinpath(f"{cut:020d}").exists()
    assert again.writes.put(make_message(b"next")).queue_offset == 90
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
    assert again.log.end_offset == last.physical_offset
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
    again.writes.put(make_message(b"next"))
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
    assert again.log.end_offset == results[5].physical_offset
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
    assert (again.log.end_offset, again.reads.max_offset("Topic", 0)) == (0, 0)
    assert again.writes.put(make_message()).physical_offset == 0


def test_a_file_of_another_size_stops_the_start(open_store, make_message):
    store = open_store()
    fill(store, make_message, 2)
    store.close()
    with pytest.raises(CorruptLog, match="65536"):
        open_store(commit_log_file_size=1 << 17)
    assert open_store().reads.max_offset("Topic", 0) == 2


def test_an_empty_last_file_is_removed(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message, 3)
    crash(store)
    (store.directory.commit_log / f"{65536:020d}").touch()
    assert all_bodies(open_store()) == sent


def test_a_file_that_a_power_cut_left_empty_ends_the_log(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 100)
    store.flush_queues(thorough=True)
    checkpoint = store.directory.checkpoint.read_bytes()
    fill(store, make_message, 200)
    crash(store)
    store.directory.checkpoint.write_bytes(checkpoint)
    end = (results[-1].end_offset // 65536 + 1) * 65536
    with (store.directory.commit_log / f"{end:020d}").open("wb"):
        pass
    again = open_store()
    assert again.log.end_offset == end
    assert all_bodies(again)[:100] == sent
    kept = {told.offset for told in again.recovery.cuts}
    assert min(kept) == end + 65536, "what the files after it have is kept"
    again.writes.put(make_message(b"next"))
    assert all_bodies(again)[-1] == b"next"


def test_an_empty_file_below_the_checkpoint_is_damage(open_store, make_message):
    store = open_store()
    fill(store, make_message, 200)
    crash(store)
    path = store.directory.commit_log / f"{65536:020d}"
    with path.open("wb"):
        pass
    for _ in range(2):
        with pytest.raises(CorruptLog, match="it has 0 bytes"):
            open_store()
    assert path.stat().st_size == 0


def test_the_checkpoint_is_never_ahead(open_store, make_message):
    store = open_store()
    fill(store, make_message, 10)
    store.save_checkpoint()
    assert store.checkpoint.confirm_offset == 0
    assert store.checkpoint.logics_physical_offset == 0
    store.flush_queues(thorough=True)
    assert store.checkpoint.confirm_offset == store.log.end_offset
    assert store.checkpoint.logics_physical_offset == store.log.end_offset


def test_bytes_behind_the_end_are_zero(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 20)
    crash(store)
    damage(store, results[10].physical_offset + 4, bytes(4))
    again = open_store()
    data = (again.directory.commit_log / f"{0:020d}").read_bytes()
    assert len(data) == 65536
    assert not data[again.log.end_offset :].strip(b"\0")


def drop_queues(store):
    shutil.rmtree(store.directory.consume_queue)


@pytest.mark.parametrize("old", [5, 25])
def test_a_topic_that_was_deleted_begins_again(open_store, make_message, old):
    """Older records of the same name are still in the log; they must not win.

    As after a deletion by Java, which keeps no table of deleted topics.
    """
    store = open_store()
    fill(store, make_message, old)
    store.delete_topic("Topic")()
    (store.directory.config / "deletedTopics.json").unlink()
    store.writes.put(make_message(b"new 0"))
    store.writes.put(make_message(b"new 1"))
    crash(store)
    drop_queues(store)
    again = open_store()
    assert all_bodies(again) == [b"new 0", b"new 1"]
    assert again.recovery.entries_dropped == old
    assert again.writes.put(make_message(b"new 2")).queue_offset == 2
    crash(again)
    assert all_bodies(open_store()) == [b"new 0", b"new 1", b"new 2"]


def test_an_orderly_stop_leaves_nothing_to_do(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message)
    store.close()
    again = open_store()
    assert again.recovery.was_clean
    assert again.recovery.lines() == []
    assert again.recovery.record_count == 0
    assert (again.log.end_offset, again.positions.durable.value) == (
        results[-1].end_offset,
    ) * 2
    assert all_bodies(again) == sent


def test_abort_left_behind_means_that_all_is_checked(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message, 40)
    crash(store)
    store.directory.checkpoint.unlink()
    again = open_store()
    assert not again.recovery.was_clean
    assert again.recovery.start_offset == 0
    assert again.recovery.record_count == 40
    assert not again.recovery.cuts
    assert all_bodies(again) == sent
    again.close()
    assert open_store().recovery.was_clean


def test_the_cut_holds_what_was_cut(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 30)
    crash(store)
    cut, end = results[20].physical_offset, results[-1].end_offset
    damage(store, cut + 200, b"damage")
    path = store.directory.commit_log / f"{0:020d}"
    before = path.read_bytes()[cut:end]
    again = open_store()
    [told] = again.recovery.cuts
    aside = again.directory.cut / f"{cut:020d}"
    assert aside.read_bytes() == before
    assert (told.kept_aside, told.byte_count) == (str(aside), len(before))
    assert str(aside) in again.recovery.lines()[1]


def test_damage_in_the_middle_ends_all_files_behind(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 200)
    crash(store)
    store.directory.checkpoint.unlink()
    cut = results[100].physical_offset
    assert results[-1].physical_offset // 65536 > cut // 65536 + 1
    damage(store, cut + 200, b"damage")
    again = open_store()
    assert again.log.end_offset == cut
    assert all_bodies(again) == sent[:100]
    bases = [int(path.name) for path in again.directory.commit_log.iterdir()]
    assert max(bases) == cut // 65536 * 65536
    kept = {told.offset for told in again.recovery.cuts}
    aside = {int(path.name) for path in again.directory.cut.iterdir()}
    assert (
        kept
        == aside
        == {cut, *range(max(bases) + 65536, results[-1].end_offset, 65536)}
    )


@pytest.mark.parametrize("is_clean", [True, False])
def test_stale_bytes_behind_the_end_are_set_aside(open_store, make_message, is_clean):
    store = open_store()
    sent, results = fill(store, make_message, 10)
    end = results[-1].end_offset
    if is_clean:
        store.close()
    else:
        crash(store)
    damage(store, end, b"stale bytes")
    again = open_store()
    assert again.log.end_offset == end
    [told] = again.recovery.cuts
    assert (told.offset, told.reason, told.byte_count) == (end, "bad magic", 11)
    assert all_bodies(again) == sent
    again.writes.put(make_message(b"next"))
    assert all_bodies(again) == [*sent, b"next"]


def test_an_old_record_behind_a_hole_does_not_come_back(open_store, make_message):
    """A power cut lost the page of record 5; what stands behind it is whole."""
    store = open_store()
    sent, results = fill(store, make_message, 10)
    crash(store)
    size = results[0].end_offset
    damage(store, results[5].physical_offset, bytes(size))
    again = open_store()
    assert again.log.end_offset == results[5].physical_offset
    assert again.writes.put(make_message(sent[5])).end_offset == results[5].end_offset
    crash(again)
    last = open_store()
    assert all_bodies(last) == sent[:6]
    assert last.log.end_offset == results[5].end_offset


@pytest.mark.parametrize("is_clean", [True, False])
def test_all_queues_deleted_means_all_are_rebuilt(open_store, make_message, is_clean):
    store = open_store()
    sent, _ = fill(store, make_message)
    for n in range(15):
        store.writes.put(make_message(bytes([n]), topic="Other", queue_id=3))
    if is_clean:
        store.close()
    else:
        crash(store)
    drop_queues(store)
    again = open_store()
    assert all_bodies(again) == sent
    assert again.reads.max_offset("Other", 3) == 15
    assert again.recovery.entries_added == len(sent) + 15


def test_one_queue_deleted_is_rebuilt_after_a_crash(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message)
    for _ in range(200):
        store.writes.put(make_message(b"o" * 900, topic="Other"))
    store.flush_queues(thorough=True)
    store.writes.put(make_message(b"last"))
    crash(store)
    shutil.rmtree(store.directory.consume_queue / "Topic")
    again = open_store()
    assert all_bodies(again) == [*sent, b"last"]
    assert again.recovery.start_offset == 0


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "fields", [None, (0,) * 6, (1 << 62,) * 6, (2_000_000_000_000, 0, 0, 0, 0, 0)]
)
def test_a_wrong_checkpoint_loses_nothing(open_store, make_message, is_clean, fields):
    store = open_store()
    sent, results = fill(store, make_message, 150)
    if is_clean:
        store.close()
    else:
        crash(store)
    if fields is None:
        store.directory.checkpoint.unlink()
    else:
        Checkpoint(*fields).save(store.directory.checkpoint)
    again = open_store()
    assert all_bodies(again) == sent
    assert again.log.end_offset == results[-1].end_offset
    assert not again.recovery.cuts
    again.close()
    saved = Checkpoint.load(store.directory.checkpoint)
    assert (
        saved.logics_physical_offset == saved.confirm_offset == results[-1].end_offset
    )


def test_a_checkpoint_from_the_future_hides_no_lost_entries(open_store, make_message):
    store = open_store()
    sent, _ = fill(store, make_message, 150)
    crash(store)
    Checkpoint(*(1 << 62,) * 6).save(store.directory.checkpoint)
    for path in (store.directory.consume_queue / "Topic" / "0").iterdir():
        if int(path.name) >= 400:
            path.unlink()
    assert all_bodies(open_store()) == sent


def test_crc_is_not_checked_if_so_configured(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 20)
    crash(store)
    damage(store, results[10].physical_offset + 200, b"damage")
    again = open_store(check_crc_on_recover=False)
    assert again.log.end_offset == results[-1].end_offset
    assert not again.recovery.cuts
    assert again.reads.max_offset("Topic", 0) == len(sent)


def test_records_of_impossible_topics_stay_unqueued(open_store, make_message):
    store = open_store()
    sent, results = fill(store, make_message, 3)
    crash(store)
    drop_queues(store)
    size = results[0].end_offset
    for n, name in ((0, b"../.."), (1, b"\xff\xfe\xfd\xfc\xfb")):
        at = results[n].physical_offset
        damage(store, at + size - 2 - len(name), name)
    again = open_store()
    assert again.log.end_offset == results[-1].end_offset
    assert not (again.directory.root.parent / "0").exists()
    unqueued = [note for note in again.recovery.notes if "get no entries" in note]
    assert len(unqueued) == 2
    result = again.reads.get("Topic", 0, 2, 1)
    assert decode_record(result.body).body == sent[2]
    assert again.reads.min_offset("Topic", 0) == 2


def test_records_behind_a_cut_are_counted(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 30)
    crash(store)
    damage(store, results[20].physical_offset + 200, b"damage")
    [told] = open_store().recovery.cuts
    assert told.record_count == 9
    assert "among them 9 complete records" in str(told)
    assert "rmq store repair --restore" in str(told)


def test_the_report_says_how_long_each_phase_took(open_store, make_message):
    store = open_store()
    fill(store, make_message, 30)
    crash(store)
    report = open_store().recovery
    assert list(report.phases_ms) == ["queues", "log", "cut", "ends"]
    assert report.duration_ms == sum(report.phases_ms.values())
    assert "log " in report.lines()[0]


def test_a_page_lost_long_ago_in_the_queue_is_refilled(open_store, make_message):
    """More files back than a walk over the last three sees; nothing was flushed."""
    store = open_store()
    sent, _ = fill(store, make_message)
    crash(store)
    Checkpoint().save(store.directory.checkpoint)
    path = store.directory.consume_queue / "Topic" / "0" / f"{400:020d}"
    path.write_bytes(bytes(200))
    assert all_bodies(open_store()) == sent


def test_files_below_the_checkpoint_are_not_looked_at(
    open_store, make_message, monkeypatch
):
    store = open_store()
    _, results = fill(store, make_message)
    store.close()
    queue = store.queues.get_or_create("Topic", 0)
    looked = []

    def look(path, size, known, durable):
        looked.append(path)
        return find_entries_end(path, size, known, durable)

    monkeypatch.setattr(consume_queue, "find_entries_end", look)
    for n, checked in ((0, 10), (1, 10), (11, 9), (75, 3), (99, 1)):
        looked.clear()
        queue.load(0, results[n].physical_offset)
        assert (len(looked), queue.next_offset) == (checked, 100), n
    looked.clear()
    queue.load(95)
    assert (len(looked), queue.next_offset) == (1, 100)
    queue.load(150)
    assert queue.next_offset == 100, "files that lost entries"


def test_an_entry_that_names_no_record_hides_none(open_store, make_message):
    """A flipped bit makes the last entry look as if the queue were far ahead."""
    store = open_store()
    sent, _ = fill(store, make_message, 30)
    crash(store)
    Checkpoint().save(store.directory.checkpoint)
    path = store.directory.consume_queue / "Topic" / "0" / f"{400:020d}"
    data = bytearray(path.read_bytes())
    data[9 * 20 + 6] ^= 0x40
    path.write_bytes(data)
    again = open_store()
    assert all_bodies(again) == sent
    assert again.recovery.entries_dropped == 1


def test_a_long_file_is_read_from_shortly_before_the_checkpoint(
    open_store, make_message, monkeypatch
):
    store = open_store(commit_log_file_size=1 << 20)
    sent, results = fill(store, make_message, 100)
    store.flush_queues(thorough=True)
    sent += fill(store, make_message, 100)[0]
    crash(store)
    checkpoint = Checkpoint.load(store.directory.checkpoint)
    checkpoint.logics_physical_offset = results[-1].end_offset
    checkpoint.save(store.directory.checkpoint)
    monkeypatch.setattr("rmq.store.recovery.CHECKED_BEHIND", 10_000)
    again = open_store(commit_log_file_size=1 << 20)
    assert all_bodies(again) == sent
    start = again.recovery.start_offset
    assert start in {result.physical_offset for result in results}
    assert 9_000 < results[-1].end_offset - start <= 10_000


def test_the_distance_to_the_checkpoint(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 10)
    assert store.checkpoint_distance == results[-1].end_offset
    store.flush_queues(thorough=True)
    assert store.checkpoint_distance == 0


@pytest.mark.parametrize("at", [0, 4, 28, 84, 200])
def test_damage_where_a_file_begins(open_store, make_message, at):
    store = open_store()
    sent, results = fill(store, make_message)
    crash(store)
    Checkpoint().save(store.directory.checkpoint)
    first = next(n for n, r in enumerate(results) if r.physical_offset == 65536)
    damage(store, 65536 + at, b"\x01")
    again = open_store()
    assert again.log.end_offset == 65536
    assert all_bodies(again) == sent[:first]


@pytest.mark.parametrize("lost", [1, 2])
def test_a_record_whose_properties_lost_their_end_ends_the_log(
    open_store, make_message, lost
):
    """No checksum covers properties: a lost sector leaves zeros in them."""
    store = open_store()
    put = store.writes.put
    results = [put(make_message(properties={"k": "x" * 1_500})) for _ in range(5)]
    crash(store)
    boundary = results[-1].end_offset // 512 * 512
    assert boundary > results[-1].physical_offset + 512 * lost
    damage(store, boundary - 512 * (lost - 1), bytes(512 * lost))
    store.directory.root.joinpath("claim").unlink()  # it was not durable
    again = open_store()
    assert again.log.end_offset == results[-1].physical_offset
    assert again.queues.get("Topic", 0).next_offset == 4


def test_zeros_of_a_producer_stay(open_store, make_message):
    store = open_store()
    for size in range(1_200, 1_800, 50):
        text = "x" * size + "\0" * 3
        result = store.writes.put(make_message(properties={"k": text}))
        crash(store)
        store = open_store()
        kept = result.end_offset
        assert store.log.end_offset == kept or kept % 512 in range(3)


@pytest.mark.parametrize("byte", [20, 24, 25, 26, 27])
def test_a_changed_queue_offset_costs_one_message(open_store, make_message, byte):
    """No checksum covers it; a large one would fill the memory with fillers."""
    store = open_store()
    sent, results = fill(store, make_message)
    place = results[40].physical_offset
    crash(store)
    drop_queues(store)
    damage(store, place + byte, b"\x07" if byte == 20 else b"\x77")
    again = open_store()
    assert again.reads.max_offset("Topic", 0) == 100
    found = {}
    for offset in range(100):
        result = again.reads.get("Topic", 0, offset, 1)
        if result.status is GetStatus.FOUND:
            record = decode_record(result.body)
            found[record.queue_offset] = record.body
    assert found == {n: body for n, body in enumerate(sent) if n != 40}
    assert any("has a bad queue offset" in line for line in again.recovery.lines())
