"""Puts and gets over real files of small sizes."""

import errno
import os
import threading
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest

from rmq._fastpath.bytes.hashing import tags_code
from rmq._fastpath.log.decode import RecordStatus, check_record, decode_record
from rmq._fastpath.log.queue_file import write_entries
from rmq.core.errors import DiskFull, LogFailed, StoreClosed, StoreError
from rmq.protocol.batch import BatchItem
from rmq.store import allocate, message_store
from rmq.store.commit_log import CommitLog
from rmq.store.config import FlushDiskType
from rmq.store.queues import queue_flush
from rmq.store.results import Boundary, GetStatus, PutResult, PutStatus
from tests.store.steps import result_of


def bodies(store, topic="Topic", queue_id=0):
    """All visible bodies of a queue, in order; offsets must be consecutive."""
    found = []
    offset = store.reads.min_offset(topic, queue_id)
    while offset < store.reads.max_offset(topic, queue_id):
        result = store.reads.get(topic, queue_id, offset, 32)
        assert result.status is GetStatus.FOUND
        position = 0
        while position < len(result.body):
            record = decode_record(result.body, position)
            found.append((record.queue_offset, record.body))
            position += record.size
        offset = result.next_begin_offset
    first = store.reads.min_offset(topic, queue_id)
    assert [at for at, _ in found] == list(range(first, first + len(found)))
    return [body for _, body in found]


def test_put_and_get(open_store, make_message):
    store = open_store()
    result = store.writes.put(make_message(b"hello", properties={"TAGS": "a"}))
    assert result.status is PutStatus.PUT_OK
    assert (result.queue_offset, result.physical_offset) == (0, 0)
    assert result.end_offset == store.log.end_offset
    touched = [(*key, end) for key, end in store.writes.end_batch().items()]
    assert touched == [("Topic", 0, 1)]
    assert store.writes.end_batch() == {}
    assert bodies(store) == [b"hello"]
    assert store.reads.record_at(0) == store.reads.get("Topic", 0, 0, 1).body
    assert store.reads.record_at(store.log.end_offset) is None


def test_statuses_outside_a_queue(open_store, make_message):
    store = open_store()
    assert store.reads.get("None", 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    store.writes.put(make_message())
    one = store.reads.get("Topic", 0, 1, 1)
    assert (one.status, one.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_ONE, 1)
    badly = store.reads.get("Topic", 0, 9, 1)
    assert badly.status is GetStatus.OFFSET_OVERFLOW_BADLY
    assert badly.next_begin_offset == 1
    small = store.reads.get("Topic", 0, -1, 1)
    assert (small.status, small.next_begin_offset) == (GetStatus.OFFSET_TOO_SMALL, 0)


def test_limits_of_one_get(open_store, make_message):
    store = open_store(queue_file_size=20_000)
    for _ in range(50):
        store.writes.put(make_message(b"x" * 100))
    assert store.reads.get("Topic", 0, 0, 100).message_count == 32
    assert store.reads.get("Topic", 0, 0, 100, max_bytes=1).message_count == 1
    cold = open_store(store.directory.root.parent / "cold", memory_ratio=0)
    for _ in range(50):
        cold.writes.put(make_message(b"x" * 100))
    result = cold.reads.get("Topic", 0, 0, 100)
    assert result.message_count == 8
    assert result.is_far_behind


def test_a_tag_that_nobody_has_is_scanned_for_in_steps(open_store, make_message):
    store = open_store(queue_file_size=40_000, commit_log_file_size=1 << 20)
    for _ in range(1000):
        store.writes.put(make_message(b""))
    result = store.reads.get("Topic", 0, 0, 32, tag_codes=(7,))
    assert result.status is GetStatus.NO_MATCHED_MESSAGE
    assert result.next_begin_offset == 800


def test_files_roll_and_nothing_is_lost(open_store, make_message):
    store = open_store()
    sent = [bytes([n % 251]) * 900 for n in range(300)]
    for body in sent:
        assert store.writes.put(make_message(body)).status is PutStatus.PUT_OK
    assert len(store.log.files.files) > 3
    assert bodies(store) == sent
    store.close()
    again = open_store()
    assert bodies(again) == sent
    assert not again.recovery.lines()


def test_a_batch_gets_consecutive_offsets_and_one_file(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(b"z" * 60_000))
    items = [BatchItem(0, bytes([n]) * 1000, "TAGS\x01t\x02") for n in range(25)]
    result = store.writes.put_batch(make_message(), items)
    assert result.status is PutStatus.PUT_OK
    assert result.queue_offset == 1
    assert result.physical_offsets[0] == 65536
    assert bodies(store)[1:] == [item.body for item in items]
    assert store.reads.max_offset("Topic", 0) == 26


@pytest.mark.parametrize("size", [32_768, 40_000])
def test_properties_too_large(open_store, make_message, size):
    store = open_store()
    status = store.writes.put(make_message(properties_text="p" * size)).status
    assert status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.log.end_offset == 0


def test_a_record_larger_than_a_file_is_illegal(open_store, make_message):
    store = open_store()
    assert (
        store.writes.put(make_message(b"x" * 70_000)).status
        is PutStatus.MESSAGE_ILLEGAL
    )
    too_big = [BatchItem(0, b"x" * 30_000, "")] * 3
    assert (
        store.writes.put_batch(make_message(), too_big).status
        is PutStatus.MESSAGE_ILLEGAL
    )


def test_readers_stop_at_the_durable_offset(open_store, make_message):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    result = store.writes.put(make_message())
    assert store.reads.max_offset("Topic", 0) == 0
    assert store.reads.get("Topic", 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.reads.record_at(0) is None
    store.durability.flush()
    assert store.positions.durable.value == result.end_offset
    assert bodies(store) == [b"body"]


def test_the_time_search(open_store, make_message, clock):
    store = open_store()
    start = clock.ms
    for step in (0, 10, 10, 30):
        clock.ms = start + step
        store.writes.put(make_message())

    def search(ms, boundary):
        return store.reads.offset_by_time("Topic", 0, start + ms, boundary)

    assert [search(ms, Boundary.LOWER) for ms in (-1, 0, 10, 11, 31)] == [0, 0, 1, 3, 4]
    assert [search(ms, Boundary.UPPER) for ms in (-1, 0, 10, 11, 31)] == [0, 0, 2, 2, 3]


def test_the_time_search_looks_into_each_file(open_store, make_message, clock):
    """Entries are in several files and in memory; the first ones are deleted."""
    store = open_store(queue_file_size=20 * 4)
    start = clock.ms
    steps = [0, 1, 1, 1, 1, 1, 2, 2, 2, 5, 5, 5, 5, 5, 5, 7, 9, 9]
    for number, step in enumerate(steps):
        clock.ms = start + step
        store.writes.put(make_message())
        if number == 13:
            store.flush_queues(thorough=True)
    queue = store.queues.get("Topic", 0)

    def search(ms, boundary):
        return store.reads.offset_by_time("Topic", 0, start + ms, boundary)

    for first in (0, 6):
        store.queues.tails.log_start = queue.entry_at(first)[0]
        for ms in range(-1, 11):
            low = bisect_left(steps, ms, lo=first)
            high = bisect_right(steps, ms, lo=first)
            assert search(ms, Boundary.LOWER) == low
            assert search(ms, Boundary.UPPER) == (high - 1 if high > first else 0)


def test_a_clock_that_is_set_back_is_believed(open_store, make_message, clock):
    """As that of a new master, which may be behind the one before.

    A search finds the place of a time by the clock before or after that.
    """
    store = open_store()
    start, steps = clock.ms, (0, 10, 20, 5, 15, 25)
    for step in steps:
        clock.ms = start + step
        assert store.writes.put(make_message()).store_ms == start + step

    def search(ms):
        found = store.reads.offset_by_time("Topic", 0, start + ms, Boundary.LOWER)
        return int(found)

    assert [search(ms) for ms in (-1, 26)] == [0, len(steps)]
    for ms in range(1, 25):
        at = search(ms)
        assert steps[at] >= ms > steps[at - 1]


def test_a_delayed_message_carries_its_due_time(open_store, make_message, clock):
    store = open_store()
    for level in ("3", "99", "9" * 5000):
        store.writes.put(
            make_message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": level})
        )
    queue = store.queues.get("SCHEDULE_TOPIC_XXXX", 0)
    assert queue.entry_at(0)[2] == clock.ms + 10_000
    assert queue.entry_at(1)[2] == clock.ms + 7_200_000
    expected = [queue.entry_at(n)[2] for n in range(3)]
    store.flush_queues(thorough=True)
    store.close()
    for file in store.directory.consume_queue.rglob("0*"):
        if file.is_file():
            file.unlink()
    queue = open_store().queues.get("SCHEDULE_TOPIC_XXXX", 0)
    assert [queue.entry_at(n)[2] for n in range(3)] == expected


def test_half_messages_have_no_entry(open_store, make_message):
    store = open_store()
    assert store.writes.put(make_message(sys_flag=4)).status is PutStatus.PUT_OK
    assert store.reads.max_offset("Topic", 0) == 0


def test_hosts_of_16_bytes_and_long_topics(open_store, make_message):
    store = open_store()
    topic = "%RETRY%" + "t" * 140
    host = bytes(range(16)) + (1).to_bytes(4, "big")
    result = store.writes.put(make_message(topic=topic, born_host=host, sys_flag=0x10))
    assert result.status is PutStatus.PUT_OK
    record = decode_record(store.reads.record_at(0))
    assert (record.topic, record.born_host) == (topic, host)
    store.close()
    assert open_store().reads.max_offset(topic, 0) == 1


def test_a_deleted_topic_starts_again(open_store, make_message):
    store = open_store()
    for _ in range(25):
        store.writes.put(make_message())
    store.delete_topic("Topic")()
    assert store.reads.max_offset("Topic", 0) == 0
    assert not (store.directory.consume_queue / "Topic").exists()
    assert store.writes.put(make_message()).queue_offset == 0


def test_a_closed_store_answers_nothing(open_store, make_message):
    store = open_store()
    store.close()
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreClosed):
        store.reads.get("Topic", 0, 0, 1)


def test_one_directory_one_store(open_store):
    store = open_store()
    with pytest.raises(StoreError, match="open already"):
        open_store()
    store.close()
    open_store()


def no_space(*_):
    raise DiskFull("no disk space for the test")


def test_a_full_disk_at_a_file_roll_leaves_no_gap(
    open_store, make_message, monkeypatch, caplog
):
    store = open_store()
    while store.log.end_offset < 60_000:
        store.writes.put(make_message(b"x" * 1000))
    kept = bodies(store)
    with monkeypatch.context() as patch:
        patch.setattr(allocate.FileAllocator, "create", no_space)
        failed = store.writes.put(make_message(b"y" * 10_000))
        assert failed.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "disk" in store.durability.refuse_reason
        store.writes.put(make_message(b"y" * 10_000))
    store.disk.update_refusal()
    assert caplog.messages == [
        "messages are refused: no disk space for the test",
        "messages are accepted again",
    ]  # fmt: skip
    assert store.writes.put(make_message(b"y" * 10_000)).queue_offset == len(kept)
    store.writes.put(make_message(b"tail"))
    expected = [*kept, b"y" * 10_000, b"tail"]
    assert bodies(store) == expected
    store.close()
    assert bodies(open_store()) == expected


def test_a_failed_blank_record_leaves_no_gap(open_store, make_message, monkeypatch):
    """The record that ends a file may meet a full disk or a broken one."""
    store = open_store()
    while store.log.end_offset < 60_000:
        store.writes.put(make_message(b"x" * 1000))
    kept = bodies(store)
    ensure = allocate.FileAllocator.allocate_up_to

    def full(self, file, end):
        if file.path.endswith(f"{0:020d}") and file.size == 65536:
            no_space()
        ensure(self, file, end)

    with monkeypatch.context() as patch:
        patch.setattr(allocate.FileAllocator, "allocate_up_to", full)
        failed = store.writes.put(make_message(b"y" * 10_000))
        assert failed.status is PutStatus.SERVICE_NOT_AVAILABLE
    store.disk.update_refusal()
    assert store.writes.put(make_message(b"y" * 10_000)).status is PutStatus.PUT_OK
    assert bodies(store) == [*kept, b"y" * 10_000]
    assert [f.base_offset for f in store.log.files.files] == [0, 65536]


def test_a_full_disk_for_queue_files_refuses_messages(
    open_store, make_message, monkeypatch
):
    """The entries stay in memory; the next flush writes them."""
    store = open_store()
    store.writes.put(make_message(b"first"))
    with monkeypatch.context() as patch:
        patch.setattr(queue_flush, "write_entries", lambda *_: [errno.ENOSPC])
        with pytest.raises(DiskFull, match=r"no disk space for .*Topic/0"):
            store.flush_queues(thorough=True)
    refused = store.writes.put(make_message(b"second"))
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.checkpoint_distance == store.log.end_offset
    store.disk.update_refusal()
    store.flush_queues(thorough=True)
    assert store.checkpoint_distance == 0
    assert store.writes.put(make_message(b"next")).queue_offset == 1
    assert bodies(store) == [b"first", b"next"]


def test_queue_files_that_stay_broken_refuse_messages_at_last(
    open_store, make_message, monkeypatch
):
    """Else the entries that wait in memory would take all of it."""
    store = open_store()
    store.writes.put(make_message())
    monkeypatch.setattr(queue_flush, "write_entries", lambda *_: [errno.EIO])
    with pytest.raises(StoreError, match=r"cannot write .*: Input/output error"):
        store.flush_queues(thorough=True)
    assert store.durability.is_writable
    monkeypatch.setattr(message_store, "UNFLUSHED_LIMIT", 0)
    with pytest.raises(StoreError, match="Input/output"):
        store.flush_queues(thorough=True)
    assert not store.durability.is_writable
    monkeypatch.undo()


def test_a_message_that_cannot_be_encoded_leaves_nothing_behind(
    open_store, make_message
):
    store = open_store()
    items = [BatchItem(0, b"good", ""), BatchItem(1 << 40, b"bad", "")]
    with pytest.raises(OverflowError):
        store.writes.put_batch(make_message(), items)
    store.writes.put(make_message(b"next"))
    assert bodies(store) == [b"next"]


def test_who_waited_for_a_flush_that_failed_fails_too(
    open_store, make_message, monkeypatch
):
    """The kernel tells a failure once; the next fdatasync knows nothing of it."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.writes.put(make_message())
    began, may_fail, flush = threading.Event(), threading.Event(), CommitLog.flush
    results = []

    def fails_once(self, durable):
        if began.is_set():
            return flush(self, durable)
        began.set()
        may_fail.wait(10)
        raise OSError(errno.EIO, "Input/output error", "the log")

    def flush_log():
        try:
            results.append(store.durability.flush())
        except LogFailed as error:
            results.append(str(error))

    monkeypatch.setattr(CommitLog, "flush", fails_once)
    threads = [threading.Thread(target=flush_log) for _ in range(2)]
    threads[0].start()
    assert began.wait(10)
    threads[1].start()
    may_fail.set()
    for thread in threads:
        thread.join(10)
    reason = "flushing the log failed: Input/output error"
    assert [text.partition(";")[0] for text in results] == [reason] * 2
    assert store.positions.durable.value == 0


def test_a_failed_flush_ends_all_writing(open_store, make_message, monkeypatch):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.writes.put(make_message())

    def broken(_self, _durable):
        raise OSError(errno.EIO, "Input/output error", "the log")

    with monkeypatch.context() as patch:
        patch.setattr(CommitLog, "flush", broken)
        with pytest.raises(LogFailed, match="Input"):
            store.durability.flush()
    assert "flushing the log failed" in store.durability.refuse_reason
    assert not store.durability.is_writable
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.disk.update_refusal()
    assert not store.durability.is_writable
    store.close()
    assert store.positions.durable.value == 0, (
        "a second fdatasync says nothing about lost pages"
    )
    assert store.directory.abort.is_set
    assert not open_store().recovery.was_clean


def test_few_queue_files_are_mapped(open_store, make_message):
    store = open_store()
    store.queues.files.limit = 4
    for round_ in range(3):
        for queue_id in range(20):
            store.writes.put(make_message(bytes([round_]), queue_id=queue_id))
        store.flush_queues(thorough=True)
    store.writes.put(make_message(queue_id=20))
    assert len(store.queues.files) <= 13
    for queue_id in range(20):
        assert bodies(store, queue_id=queue_id) == [b"\0", b"\1", b"\2"]


@pytest.mark.usefixtures("without_ring")
def test_a_fresh_store_takes_little_disk(tmp_path, open_store, make_message):
    store = open_store(commit_log_file_size=1 << 30, queue_file_size=6_000_000)
    store.writes.put(make_message())
    blocks = sum(
        path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file()
    )
    assert blocks < 100 << 20


def test_statistics(open_store, make_message):
    store = open_store()
    store.writes.put(make_message())
    store.reads.get("Topic", 0, 0, 1)
    seen = store.statistics()
    assert (seen.put_messages, seen.get_found, seen.queue_count) == (1, 1, 1)
    assert seen.put_bytes == seen.end_offset == store.log.end_offset


def test_only_messages_of_the_tags_are_given(open_store, make_message):
    store = open_store(queue_file_size=2000)
    for n in range(12):
        store.writes.put(make_message(bytes([n]), properties={"TAGS": "abc"[n % 3]}))
    store.writes.put(make_message(b"none"))

    def wanted(*tags, **limits):
        codes = tuple(tags_code(tag) for tag in tags)
        result = store.reads.get("Topic", 0, 0, 32, tag_codes=codes, **limits)
        assert result.status is GetStatus.FOUND
        found, position = [], 0
        while position < len(result.body):
            record = decode_record(result.body, position)
            found.append(record.queue_offset)
            position += record.size
        assert len(found) == result.message_count
        return found, result.next_begin_offset

    assert wanted("a") == ([0, 3, 6, 9], 13)
    assert wanted("c", "a") == ([0, 2, 3, 5, 6, 8, 9, 11], 13)
    assert wanted("b", max_bytes=1) == ([1], 2)
    assert wanted("") == ([12], 13)
    nobody = store.reads.get("Topic", 0, 0, 32, tag_codes=(tags_code("z"),))
    assert nobody.status is GetStatus.NO_MATCHED_MESSAGE
    assert nobody.next_begin_offset == 13


def test_bytes_of_one_get_are_whole_records(open_store, make_message):
    store = open_store()
    size = store.writes.put(make_message(b"x" * 100)).end_offset
    for _ in range(4):
        store.writes.put(make_message(b"x" * 100))
    counts = [
        store.reads.get("Topic", 0, 0, 32, max_bytes=limit).message_count
        for limit in (size - 1, size, 2 * size - 1, 2 * size, 3 * size + 1)
    ]
    assert counts == [1, 1, 1, 2, 3]


def test_a_get_ends_with_the_queue_file(open_store, make_message):
    """And where the entries begin that are in memory."""
    store = open_store()
    for n in range(25):
        store.writes.put(make_message(bytes([n])))
    assert store.reads.get("Topic", 0, 7, 32).message_count == 18
    store.queues.flush()
    result = store.reads.get("Topic", 0, 7, 32)
    assert (result.message_count, result.next_begin_offset) == (3, 10)
    assert (result.min_offset, result.max_offset) == (0, 25)
    assert store.reads.get("Topic", 0, 10, 32).message_count == 10
    assert store.reads.get("Topic", 0, 20, 32).message_count == 5


def test_a_queue_that_was_never_filled_is_empty(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(sys_flag=4))
    for offset in (-1, 0, 1):
        result = store.reads.get("Topic", 0, offset, 1)
        assert result.status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert result.next_begin_offset == 0


def test_messages_whose_log_is_gone_are_too_small(open_store, make_message):
    store = open_store()
    while store.log.end_offset < 2 * 65536:
        store.writes.put(make_message(b"x" * 5000))
    queue = store.queues.get("Topic", 0)
    first = next(n for n in range(99) if queue.entry_at(n)[0] >= 65536)
    store.close()
    (store.directory.commit_log / f"{0:020d}").unlink()
    again = open_store()
    assert again.log.min_offset == 65536
    assert again.reads.min_offset("Topic", 0) == first > 0
    result = again.reads.get("Topic", 0, 0, 1)
    assert (result.status, result.next_begin_offset) == (
        GetStatus.OFFSET_TOO_SMALL,
        first,
    )
    assert again.reads.get("Topic", 0, first, 1).status is GetStatus.FOUND


@pytest.mark.usefixtures("without_ring")
def test_a_blank_record_ends_a_full_file(open_store, make_message):
    store = open_store()
    one = store.writes.put(make_message(b"x" * 30_000)).end_offset
    second = store.writes.put(make_message(b"y" * 30_000))
    third = store.writes.put(make_message(b"z" * 30_000))
    assert second.end_offset == 2 * one
    assert third.physical_offset == 65536
    data = (store.directory.commit_log / f"{0:020d}").read_bytes()
    assert check_record(data, 2 * one)[0] is RecordStatus.BLANK
    assert int.from_bytes(data[2 * one : 2 * one + 4], "big") == 65536 - 2 * one
    assert not data[2 * one + 8 :].strip(b"\0")


@pytest.mark.parametrize(("spare", "offset"), [(0, 65536), (7, 65536), (8, None)])
def test_a_record_leaves_room_for_the_blank_behind_it(
    open_store, make_message, spare, offset
):
    store = open_store()
    end = store.writes.put(make_message(b"x" * 60_000)).end_offset
    empty = store.writes.put(make_message(b"")).end_offset - end
    body = b"y" * (65536 - end - empty - empty - spare)
    result = store.writes.put(make_message(body))
    assert result.physical_offset == (end + empty if offset is None else offset)
    assert bodies(store)[-1] == body


def test_the_largest_body(open_store, make_message):
    store = open_store(max_message_size=1024)
    assert store.writes.put(make_message(b"x" * 1024)).status is PutStatus.PUT_OK
    end = store.log.end_offset
    assert (
        store.writes.put(make_message(b"x" * 1025)).status is PutStatus.MESSAGE_ILLEGAL
    )
    items = [BatchItem(0, b"", ""), BatchItem(0, b"x" * 1025, "")]
    assert (
        store.writes.put_batch(make_message(), items).status
        is PutStatus.MESSAGE_ILLEGAL
    )
    assert (store.log.end_offset, store.reads.max_offset("Topic", 0)) == (end, 1)


def test_a_batch_is_not_durable_before_the_flush(open_store, make_message):
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    wanted = []
    store.signals.new_messages = lambda: wanted.append(store.log.end_offset)
    store.writes.put(make_message(b"first"))
    store.writes.end_batch()
    store.durability.flush()
    items = [BatchItem(0, bytes([n]), "") for n in range(3)]
    result = store.writes.put_batch(make_message(), items)
    store.writes.end_batch()
    assert wanted == [store.positions.durable.value, result.end_offset]
    assert store.reads.max_offset("Topic", 0) == 1
    assert store.reads.get("Topic", 0, 1, 1).status is GetStatus.OFFSET_OVERFLOW_ONE
    assert store.reads.record_at(result.physical_offsets[0]) is None
    store.durability.flush()
    assert bodies(store) == [b"first", b"\0", b"\1", b"\2"]


def test_a_full_disk_at_the_first_put(open_store, make_message, monkeypatch):
    store = open_store()
    with monkeypatch.context() as patch:
        patch.setattr(allocate.FileAllocator, "create", no_space)
        failed = store.writes.put(make_message())
        assert failed == PutResult(PutStatus.SERVICE_NOT_AVAILABLE)
    assert (store.log.end_offset, store.reads.max_offset("Topic", 0)) == (0, 0)
    assert not store.durability.is_writable
    store.disk.update_refusal()
    assert store.durability.is_writable
    assert store.writes.put(make_message()).physical_offset == 0
    assert bodies(store) == [b"body"]


@pytest.mark.usefixtures("without_ring")
@pytest.mark.parametrize("is_batch", [False, True])
def test_a_failed_write_leaves_offsets_as_they_were(open_store, make_message, is_batch):
    """Under SYNC_FLUSH records go through pwrite, which can fail."""
    store = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH)
    store.writes.put(make_message(b"kept"))
    store.durability.flush()
    end = store.log.end_offset
    store.writes.end_batch()
    descriptor = store.log.files.files[-1].fd
    saved = os.dup(descriptor)
    read_only = os.open(store.directory.commit_log / f"{0:020d}", os.O_RDONLY)
    os.dup2(read_only, descriptor)
    if is_batch:
        result = store.writes.put_batch(make_message(), [BatchItem(0, b"lost", "")] * 3)
    else:
        result = store.writes.put(make_message(b"lost"))
    os.dup2(saved, descriptor)
    os.close(saved)
    os.close(read_only)
    assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (result.queue_offset, result.end_offset) == (0, 0)
    assert store.writes.end_batch() == {}
    assert store.log.end_offset == end
    assert bodies(store) == [b"kept"]
    assert "failed" in store.durability.refuse_reason
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    store.close()
    again = open_store()
    assert not again.recovery.was_clean
    assert bodies(again) == [b"kept"]


def test_deleting_a_topic_leaves_the_others(open_store, make_message):
    store = open_store()
    for n in range(30):
        store.writes.put(make_message(bytes([n]), topic="Kept", queue_id=n % 2))
        store.writes.put(make_message(bytes([n]), topic="Gone", queue_id=n % 3))
    store.delete_topic("Gone")()
    store.delete_topic("Gone")()
    assert store.reads.get("Gone", 0, 0, 1).status is GetStatus.NO_MESSAGE_IN_QUEUE
    even, odd = (list(map(bytes, zip(range(start, 30, 2)))) for start in (0, 1))
    assert bodies(store, "Kept", 0) == even
    store.close()
    again = open_store()
    assert bodies(again, "Kept", 0) == even
    assert bodies(again, "Kept", 1) == odd


def test_only_the_start_of_a_record_is_a_message(open_store, make_message):
    store = open_store()
    first = store.writes.put(make_message(b"\0\0\0\x40" * 64))
    second = store.writes.put(make_message())
    starts = [
        offset for offset in range(second.end_offset) if store.reads.record_at(offset)
    ]
    assert starts == [0, first.end_offset]


def test_an_empty_log_begins_nowhere(open_store, make_message):
    store = open_store()
    assert store.statistics().min_physical_offset == -1
    store.writes.put(make_message())
    assert store.statistics().min_physical_offset == 0


def test_names_of_new_files_are_made_durable(open_store, make_message, monkeypatch):
    synced, fsync = [], os.fsync

    def noted(descriptor):
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def written(writes, folders, file_size):
        synced.extend(Path(os.fsdecode(folder)) for folder in folders)
        return write_entries(writes, folders, file_size)

    store = open_store()
    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(queue_flush, "write_entries", written)
    folders = store.directory
    store.writes.put(make_message())
    store.durability.flush()
    assert synced == [folders.commit_log]
    store.writes.put(make_message())
    store.durability.flush()
    assert synced == [folders.commit_log]
    store.writes.put(make_message(b"x" * 60_000))
    store.writes.put(make_message(b"x" * 60_000))
    store.durability.flush()
    assert synced == [folders.commit_log] * 2
    synced.clear()
    store.flush_queues(thorough=True)
    queue = folders.consume_queue / "Topic"
    names = [folders.consume_queue, queue, queue / "0"]
    assert synced[:3] == names
    synced.clear()
    store.flush_queues(thorough=True)
    assert not set(names) & set(synced)


@pytest.mark.parametrize("name", ["99999999999", "\u0663", "-1", "x"])
def test_folders_that_are_no_queues_are_left_alone(open_store, make_message, name):
    store = open_store()
    store.writes.put(make_message())
    store.close()
    odd = store.directory.consume_queue / "Topic" / name
    strange = store.directory.consume_queue / ".hidden" / "0"
    for folder in (odd, strange):
        folder.mkdir(parents=True)
    store = open_store()
    for folder in (odd, strange):
        assert f"{folder} is no queue and stays untouched" in store.recovery.notes
    assert store.reads.max_offset("Topic", 0) == 1


@pytest.mark.parametrize("place", ["commitlog", "consumequeue/Topic/0", "index"])
def test_a_file_of_a_wrong_length_is_named(open_store, make_message, place):
    store = open_store()
    store.writes.put(make_message(properties_text="KEYS\x01k\x02"))
    store.close()
    [path] = (store.directory.root / place).iterdir()
    with path.open("r+b") as file:
        file.truncate(100)
    if place == "index":
        store = open_store()
        assert any(str(path) in note for note in store.recovery.notes)
        assert result_of(store.reads.query("Topic", "k", 1, 0, 1 << 62)) == [0]
    else:
        with pytest.raises(StoreError, match="it has 100 bytes") as caught:
            open_store()
        assert str(path) in str(caught.value)
    assert path.stat().st_size == 100


def test_a_file_in_the_way_of_the_next_one(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(b"x" * 60_000))
    path = store.directory.commit_log / f"{65536:020d}"
    path.write_bytes(b"not a log")
    refused = store.writes.put(make_message(b"x" * 60_000))
    assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
    path.unlink()
    assert store.writes.put(make_message(b"x" * 60_000)).status is PutStatus.PUT_OK
