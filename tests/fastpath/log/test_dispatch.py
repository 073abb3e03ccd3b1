"""The compiled dispatch of recovery against the rules in Python."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.dispatch import QueueDispatcher
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail

FILE_SIZE = 1 << 16


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("log") / "0")
    file = MappedFile(path, FILE_SIZE, base_offset=FILE_SIZE, create=True)
    file.allocate(FILE_SIZE)
    return file


def store(file, records):
    """Write records; [(offset, end, topic, queue id, queue offset, flags)]."""
    file.zero(0, FILE_SIZE)
    file.allocate(FILE_SIZE)
    file.write_position = 0
    encoder, placed = RecordEncoder(bytes(8)), []
    for topic, queue_id, queue_offset, flags in records:
        at = file.base_offset + encoder.staged_size
        size = encoder.stage(
            topic, queue_id, queue_offset, at, 0, flags, 1, bytes(8), 77, 0, 0,
            b"body", b"TAGS\x01a\x02",
        )  # fmt: skip
        placed.append((at, at + size, topic, queue_id, queue_offset, flags))
    encoder.commit(file, use_pwrite=False)
    return placed


def expected_of(placed, queues, skips):
    """Entries by queue, and how many records come before one that is not plain."""
    ends = dict.fromkeys(queues, (0, -1))
    added = {key: [] for key in queues}
    for count, (at, end, topic, queue_id, queue_offset, flags) in enumerate(placed):
        if flags & 12 in (4, 12):
            continue
        if flags & 0x80:
            return added, count
        if topic not in skips and topic not in {name for name, _ in queues}:
            return added, count
        if at < skips.get(topic, 0):
            continue
        key = topic, queue_id
        if key not in queues:
            return added, count
        following, physical = ends[key]
        if end <= physical:
            continue
        if queue_offset != following:
            return added, count
        added[key].append((at, end - at, 97))
        ends[key] = following + 1, end
    return added, len(placed)


RECORD = st.tuples(
    st.sampled_from([b"A", b"B", b"gone"]),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([0] * 9 + [8, 8, 4, 4, 12, 12, 0x80]),
)


def in_order(records):
    """Give most records the queue offset that their queue expects."""
    following = {}
    for topic, queue_id, odd, flags in records:
        key = topic, queue_id
        offset = following.get(key, 0)
        yield topic, queue_id, offset if odd < 3 else odd, flags
        if flags in (0, 8):
            following[key] = offset + 1


@given(records=st.lists(RECORD, max_size=40), skip=st.integers(0, 5_000))
@settings(max_examples=60)
def test_any_log_as_model(file, records, skip):
    placed = store(file, in_order(records))
    queues = {
        key: QueueTail(key[0].decode(), key[1])
        for key in ((b"A", 0), (b"A", 1), (b"B", 2))
    }
    dispatcher = QueueDispatcher()
    skips = {b"gone": file.base_offset + skip}
    dispatcher.skip(b"gone", skips[b"gone"])
    for queue in queues.values():
        dispatcher.add(queue)
    done = dispatcher.run(file, 0, FILE_SIZE)
    added, count = expected_of(placed, queues, skips)
    assert done.records == count
    assert done.is_stopped == (count < len(placed))
    assert done.entries == sum(map(len, added.values()))
    for key, queue in queues.items():
        found = [queue.entry_in_memory(n) for n in range(queue.next_offset)]
        assert found == added[key]
    status = RecordStatus.OK if done.is_stopped else RecordStatus.END
    assert done.status is status
    if count:
        assert done.position == placed[count - 1][1] - file.base_offset
        assert done.store_ms == 77
    again = dispatcher.run(file, 0, FILE_SIZE)
    assert (again.records, again.entries) == (count, 0), "they have their entries"


def test_a_record_that_is_not_whole_ends_it(file):
    [_, (at, *_)] = store(file, [(b"A", 0, 0, 0), (b"A", 0, 1, 0)])
    file.write(at - file.base_offset + 88, b"B")
    queue, dispatcher = QueueTail("A", 0), QueueDispatcher()
    dispatcher.add(queue)
    done = dispatcher.run(file, 0, FILE_SIZE)
    assert (done.status, done.records) == (RecordStatus.BAD_CRC, 1)
    assert dispatcher.run(file, 0, FILE_SIZE, check_crc=False).entries == 1
    file.write(28, b"\1")
    assert dispatcher.run(file, 0, FILE_SIZE).status is RecordStatus.BAD_OFFSET


def test_queues_with_high_numbers_are_left_to_python(file):
    store(file, [(b"A", 5_000, 0, 0)])
    dispatcher = QueueDispatcher()
    dispatcher.add(QueueTail("A", 5_000))
    done = dispatcher.run(file, 0, FILE_SIZE)
    assert (done.records, done.is_stopped) == (0, True)
