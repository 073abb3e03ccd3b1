"""Appends through the writable ends, against the slow model of a record."""

import os

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from tests.model.record import ModelRecord

BORN = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0xF8])


def mapped(path, size, allocated=None):
    file = MappedFile(str(path), size, create=True)
    file.allocate(size if allocated is None else allocated)
    return file


@pytest.fixture
def tail(tmp_path):
    log = LogTail(RecordEncoder(bytes(8)))
    log.file = mapped(tmp_path / "log", 1 << 16)
    return log


@pytest.fixture
def queue():
    return QueueTail("t", 3)


def append(
    log, queue, *, is_queued=True, body=b"body", code=None, text="TAGS\x01a\x02"
):
    return log.append(queue, is_queued, 7, 0, 5, BORN, 6, 0, 0, body, text, code)


def test_records_and_entries_stand_where_the_answer_says(tail, queue):
    tail.file.write_position = 100
    for n, code in enumerate([None, 1 << 50, -1]):
        queue_offset, offset, end = append(tail, queue, code=code)
        record = ModelRecord(
            b"t", 3, n, offset, 7, 0, 5, BORN, 6, bytes(8), 0, 0,
            b"body", b"TAGS\x01a\x02",
        )  # fmt: skip
        assert (queue_offset, queue.next_offset, queue.end_physical) == (n, n + 1, end)
        assert tail.file.read(offset, end - offset) == record.encode()
        expected = 97 if code is None else code
        assert queue.entry_in_memory(n) == (offset, end - offset, expected)
        assert tail.end_offset == end
    assert (tail.put_messages, tail.put_bytes) == (3, end - 100)
    assert tail.last_store_ms == 6


def test_a_record_without_entry_leaves_the_queue_alone(tail, queue):
    assert append(tail, queue, is_queued=False) == (0, 0, tail.end_offset)
    assert (queue.next_offset, queue.end_physical) == (0, -1)
    assert tail.take_touched() == []
    queue.is_deleted = True
    place = append(tail, queue, is_queued=False)
    assert place is not None


@pytest.mark.parametrize("missing", ["log file", "log blocks", "log end", "queue"])
def test_without_room_nothing_is_written(tail, queue, tmp_path, missing):
    if missing == "log file":
        tail.file = None
    elif missing == "log blocks":
        tail.file = mapped(tmp_path / "blocks", 1 << 16, 4096)
        tail.file.write_position = 4096 - 50
    elif missing == "log end":
        size = append(tail, queue)[2]
        tail.file.write_position = tail.file.size - size - 7  # a blank record takes 8
    else:
        queue.is_deleted = True
    before = queue.next_offset, tail.put_messages, tail.end_offset
    place = append(tail, queue)
    assert place is None
    assert (queue.next_offset, tail.put_messages, tail.end_offset) == before
    assert tail.encoder.staged_size == 0


def test_the_last_record_leaves_room_for_a_blank_one(tail, queue):
    size = append(tail, queue)[2]
    tail.file.write_position = tail.file.size - size - 8
    assert append(tail, queue) == (1, tail.file.size - size - 8, tail.file.size - 8)


def test_a_closed_file_is_no_room(tail, queue):
    tail.file.close()
    place = append(tail, queue)
    assert place is None
    place = append(tail, queue, is_queued=False)
    assert place is None


def test_touched_queues_are_told_once(tail, queue):
    other = QueueTail("other", 0)
    for end in (queue, other, queue):
        append(tail, end)
    tail.mark_touched(other)
    assert tail.take_touched() == [queue, other]
    assert tail.take_touched() == []
    tail.mark_touched(other)
    assert tail.take_touched() == [other]


def test_what_cannot_be_stored_is_refused_before_anything_is_written(tail, queue):
    with pytest.raises(ValueError, match="properties of 32768 bytes"):
        append(tail, queue, text="x" * 32_768)
    with pytest.raises(OverflowError):
        append(tail, queue, code=1 << 64)
    with pytest.raises(UnicodeEncodeError):
        append(tail, queue, text="\ud800")
    with pytest.raises(TypeError):
        append(tail, None)
    assert append(tail, queue)[:2] == (0, 0)


def test_a_failed_write_publishes_nothing(tail, queue, tmp_path):
    """Through pwrite, to a descriptor that cannot be written."""
    tail.always_pwrite = True
    read_only = os.open(tail.file.path, os.O_RDONLY)
    saved = os.dup(tail.file.fd)
    os.dup2(read_only, tail.file.fd)
    with pytest.raises(OSError, match="log"):
        append(tail, queue)
    os.dup2(saved, tail.file.fd)
    os.close(saved)
    os.close(read_only)
    assert (queue.next_offset, tail.put_messages, tail.end_offset) == (0, 0, 0)
    assert append(tail, queue)[:2] == (0, 0)


def test_a_batch_is_committed_as_one(tail, queue):
    for n in range(3):
        tail.encoder.stage(b"t", 3, n, 0, 0, 0, 1, BORN, 2, 0, 0, b"b", b"")
    staged = tail.encoder.staged_bytes()
    assert tail.commit(3) == len(staged)
    assert tail.file.read(0, len(staged)) == staged
    assert tail.put_messages == 3
    tail.file = None
    with pytest.raises(ValueError, match="no file"):
        tail.commit(0)


TARGETS = {b"A": b"t\x013", b"B": b"other\x010"}


def put_aside(*wanted, times=(5,), **more):
    """Records as they lie in the schedule topic."""
    encoder = RecordEncoder(bytes(8))
    for n, name in enumerate(wanted):
        topic, _, queue_id = TARGETS.get(name, b"unknown\x019").partition(b"\x01")
        text = b"TAGS\x01a\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%b\x02" % (
            topic,
            queue_id,
        )
        fields = {"flag": 7, "sys_flag": 0, "prepared": 99, "text": text, **more}
        encoder.stage(
            b"SCHEDULE_TOPIC_XXXX", 0, 40 + n, 0, fields["flag"], fields["sys_flag"], 4,
            fields.get("born", BORN), times[n % len(times)], 2, fields["prepared"],
            b"body%d" % n, fields["text"],
        )  # fmt: skip
    return encoder.staged_bytes()


@pytest.fixture
def queues(queue):
    other = QueueTail("other", 0)
    return {TARGETS[b"A"]: queue, TARGETS[b"B"]: other}


@pytest.mark.parametrize("born", [BORN, bytes(range(16)) + BORN[4:]])
def test_copies_are_the_same_messages_in_other_queues(tail, queues, born):
    append(tail, queues[TARGETS[b"A"]])
    start = tail.end_offset
    records = put_aside(b"A", b"B", b"A", born=born)
    assert tail.append_copies(queues, records, 0, 5, 9) == (len(records), 43)
    place = tail.append_copies(queues, records, len(records), 5, 9)
    assert place is None
    offset, ends = start, {b"t": 1, b"other": 0}
    for n, name in enumerate([b"A", b"B", b"A"]):
        topic, _, queue_id = TARGETS[name].partition(b"\x01")
        text = b"TAGS\x01a\x02REAL_TOPIC\x01%b\x02REAL_QID\x01%b\x02" % (
            topic,
            queue_id,
        )
        expected = ModelRecord(
            topic, int(queue_id), ends[topic], offset, 7, 0, 4, born, 9, bytes(8), 2, 0,
            b"body%d" % n, text,
        ).encode()  # fmt: skip
        assert tail.file.read(offset, len(expected)) == expected
        entry = queues[TARGETS[name]].entry_in_memory(ends[topic])
        assert entry == (offset, len(expected), 97)
        ends[topic] += 1
        offset += len(expected)
    assert (tail.end_offset, tail.put_messages, tail.last_store_ms) == (offset, 4, 9)
    assert set(tail.take_touched()) == set(queues.values())


@pytest.mark.parametrize(
    "odd",
    [
        {"times": (6,)},
        {"wanted": (b"C",)},
        {"text": b"REAL_TOPIC\x01t\x02REAL_TOPIC\x01t\x02REAL_QID\x013\x02"},
        {"text": b"REAL_TOPIC\x01t\x02"},
        {"text": b"REAL_TOPIC\x01t\x02REAL_QID\x01%b\x02" % (b"3" * 300)},
        {"sys_flag": 4},
        {"sys_flag": 12},
    ],
)
def test_copies_end_before_what_is_not_theirs(tail, queues, odd):
    first = put_aside(b"A")
    records = first + put_aside(*odd.get("wanted", (b"A",)), **odd)
    assert tail.append_copies(queues, records, 0, 5, 9) == (len(first), 41)
    place = tail.append_copies(queues, records, len(first), 5, 9)
    assert place is None
    assert tail.encoder.staged_size == 0


def test_copies_end_where_the_room_ends(tail, queues):
    records = put_aside(*[b"A"] * 12)
    position, following = tail.append_copies(queues, records, 0, 5, 9)
    assert (position, following) == (len(records), 52)
    queues[TARGETS[b"A"]].is_deleted = True
    place = tail.append_copies(queues, records, 0, 5, 9)
    assert place is None
    tail.file = None
    place = tail.append_copies(queues, put_aside(b"B"), 0, 5, 9)
    assert place is None


TIMED = b"REAL_TOPIC\x01t\x02REAL_QID\x013\x02TIMER_OUT_MS\x01%b\x02"
ADDED = b"TIMER_ENQUEUE_MS\x011\x02"


def test_timed_copies_have_the_added_properties(tail, queues):
    records = [put_aside(b"A", text=TIMED % b"1500") for _ in range(70)]
    added = [b"x\x01%d\x02" % number for number in range(70)]
    assert tail.append_timed(queues, records, added, 5, 1_000, 2_000, 9) == 64
    assert tail.append_timed(queues, records, added, 69, 1_000, 2_000, 9) == 1
    assert tail.append_timed(queues, records, added, 70, 1_000, 2_000, 9) == 0
    queue = queues[TARGETS[b"A"]]
    offset, size, _ = queue.entry_in_memory(0)
    assert TIMED % b"1500" + b"x\x015\x02" in tail.file.read(offset, size)
    assert tail.put_messages == 65


@pytest.mark.parametrize(
    "text",
    [
        TIMED % b"999",
        TIMED % b"2000",
        TIMED % b"x",
        TIMED % b"",
        TIMED % b"-1500",
        (TIMED % b"1500")[:-1],
        TIMED % b"1500" + b"TIMER_OUT_MS\x011500\x02",
        TIMED % b"1500" + b"TIMER_ENQUEUE_MS\x011\x02",
        TIMED % b"1500" + b"TIMER_DEQUEUE_MS\x011\x02",
        TIMED % b"1500" + b"TIMER_ROLL_TIMES\x011\x02",
        TIMED % b"1500" + b"f\x01%b\x02" % (b"x" * 32_710),
        b"TIMER_OUT_MS\x011500\x02",
        b"",
    ],
)
def test_timed_copies_end_before_what_is_not_theirs(tail, queues, text):
    records = [put_aside(b"A", text=TIMED % b"1500"), put_aside(b"A", text=text)]
    added = [ADDED, ADDED]
    assert tail.append_timed(queues, records, added, 0, 1_000, 2_000, 9) == 1
    assert tail.append_timed(queues, records, added, 1, 1_000, 2_000, 9) == 0
    assert tail.append_timed(queues, [b"short"], added, 0, 1_000, 2_000, 9) == 0
    long = [ADDED * 9, ADDED]
    assert tail.append_timed(queues, records, long, 0, 1_000, 2_000, 9) == 0
    assert tail.encoder.staged_size == 0


def test_copies_that_fail_publish_nothing(tail, queues):
    tail.always_pwrite = True
    read_only, saved = os.open(tail.file.path, os.O_RDONLY), os.dup(tail.file.fd)
    os.dup2(read_only, tail.file.fd)
    with pytest.raises(OSError, match="log"):
        tail.append_copies(queues, put_aside(b"A", b"B"), 0, 5, 9)
    os.dup2(saved, tail.file.fd)
    os.close(saved)
    os.close(read_only)
    assert [queue.next_offset for queue in queues.values()] == [0, 0]
    assert tail.append_copies(queues, put_aside(b"A", b"B"), 0, 5, 9)[1] == 42


@pytest.mark.parametrize("records", [b"", b"\0" * 100, b"\x7f\xff\xff\xff" * 30])
def test_no_record_is_no_copy(tail, queues, records):
    place = tail.append_copies(queues, records, 0, 5, 9)
    assert place is None
    whole = put_aside(b"A")
    place = tail.append_copies(queues, whole[:-1], 0, 5, 9)
    assert place is None
    with pytest.raises(TypeError):
        tail.append_copies({TARGETS[b"A"]: "queue"}, whole, 0, 5, 9)
