"""A log that is a copy, in any pieces, and the queues that it makes."""

import random
from pathlib import Path

import pytest

from rmq.core.errors import Diverged, StoreError
from rmq.protocol.properties import DELAY
from rmq.store.config import BrokerRole
from rmq.store.replica_writer import ReplicaWriter

FILE_SIZE = 1 << 16
LARGE = iter(lambda: 1 << 20, 0)
QUEUES = [("A", 0), ("A", 3), ("B", 0), ("SCHEDULE_TOPIC_XXXX", 2)]


@pytest.fixture
def master(open_store, tmp_path):
    return open_store(tmp_path / "master", commit_log_file_size=FILE_SIZE)


@pytest.fixture
def replica(open_store, tmp_path):
    return open_store(
        tmp_path / "replica",
        commit_log_file_size=FILE_SIZE,
        broker_role=BrokerRole.SLAVE,
    )


def fill(store, make_message, count, seed=1):
    """Messages of all kinds, over several files."""
    rng = random.Random(seed)
    for number in range(count):
        topic, queue_id = QUEUES[number % len(QUEUES)]
        properties = {"TAGS": f"t{number % 3}"}
        if topic.startswith("SCHEDULE"):
            properties[DELAY] = "3"
        message = make_message(
            body=rng.randbytes(rng.randrange(1, 900)),
            topic=topic,
            queue_id=queue_id,
            properties=properties,
            sys_flag=4 if number % 10 == 9 else 0,  # prepared: without an entry
        )
        assert store.writes.put(message).end_offset > 0


def bytes_of(store, start=0):
    """The log in pieces that end where its files end."""
    while start < store.log.end_offset:
        file = store.log.files.find(start)
        end = min(file.base_offset + file.size, store.log.end_offset)
        yield start, bytes(store.log.read(start, end - start))
        start = end


def copy(master, writer, sizes=LARGE):
    for start, data in bytes_of(master, writer.received_offset):
        while data:
            piece, data = data[: (size := next(sizes))], data[size:]
            writer.append(start, piece)
            start += len(piece)


def entries_of(store):
    found = {}
    for queue in store.queues:
        offsets = range(queue.min_offset, queue.next_offset)
        found[queue.topic, queue.queue_id] = [queue.entry_at(each) for each in offsets]
    return found


def logs_of(*stores):
    return [b"".join(data for _, data in bytes_of(store)) for store in stores]


@pytest.mark.parametrize("largest", [7, 300, 5_000, 1 << 20])
def test_log_and_queues_become_equal_in_any_pieces(
    master, replica, make_message, largest
):
    fill(master, make_message, 700)
    assert len(master.log.files.files) > 3
    rng = random.Random(largest)
    sizes = iter(lambda: rng.randrange(1, largest + 1), 0)
    writer = ReplicaWriter(replica)
    copy(master, writer, sizes)
    assert replica.log.end_offset == master.log.end_offset == writer.whole_offset
    assert entries_of(replica) == entries_of(master)
    ours, theirs = logs_of(replica, master)
    assert ours == theirs
    assert replica.log.last_store_ms == master.log.last_store_ms
    touched = set(replica.writes.end_batch())
    assert touched == set(entries_of(master))


def test_nobody_sees_a_record_before_it_is_whole(master, replica, make_message):
    fill(master, make_message, 3)
    [(_, data)] = bytes_of(master)
    writer = ReplicaWriter(replica)
    ends = set()
    for at in range(len(data)):
        writer.append(at, data[at : at + 1])
        ends.add(replica.log.end_offset)
    starts = [entry[0] for entries in entries_of(master).values() for entry in entries]
    assert ends == {*starts, len(data)}


def test_what_is_not_whole_is_forgotten(master, replica, make_message, open_store):
    fill(master, make_message, 10)
    [(_, data)] = bytes_of(master)
    writer = ReplicaWriter(replica)
    writer.append(0, data[:-3])
    whole = writer.whole_offset
    assert whole < writer.received_offset == len(data) - 3
    writer.rewind()
    assert writer.received_offset == whole
    file = replica.log.files.files[0]
    assert not any(file.read(whole, len(data) - whole))
    writer.append(whole, data[whole:])
    assert entries_of(replica) == entries_of(master)


@pytest.mark.parametrize(
    ("at", "what"),
    [(0, "does not end"), (4, "magic"), (8, "crc"), (20, "number"), (28, "offset"),
     (84, "lengths"), (90, "crc"), (-40, "crc"), (-23, "lengths")],
)  # fmt: skip
def test_a_changed_byte_is_noticed(master, replica, make_message, at, what):
    """Whatever a length or a checksum covers; Java's records check no more."""
    for body in (b"first" * 10, b"second" * 10):
        master.writes.put(make_message(body=body, topic="A" * 20))
    [(_, data)] = bytes_of(master)
    size = int.from_bytes(data[:4], "big")
    changed = bytearray(data)
    changed[size + at if at >= 0 else at] ^= 0x55
    writer = ReplicaWriter(replica)
    with pytest.raises(Diverged, match=what) as refusal:
        writer.append(0, bytes(changed))
    assert refusal.value.offset == size == replica.log.end_offset
    assert len(entries_of(replica)["A" * 20, 0]) == 1


def test_a_record_with_another_place_in_its_queue_is_refused(
    master, replica, make_message
):
    fill(master, make_message, 40)
    [(_, data)] = bytes_of(master)
    writer = ReplicaWriter(replica)
    sizes, at = [], 0
    while at < len(data):
        sizes.append(int.from_bytes(data[at : at + 4], "big"))
        at += sizes[-1]
    place = sum(sizes[:20])
    changed = bytearray(data)
    changed[place + 20 : place + 28] = (77).to_bytes(8, "big")  # its queue offset
    with pytest.raises(Diverged, match="number 77 of queue") as refusal:
        writer.append(0, bytes(changed))
    assert refusal.value.offset == place == replica.log.end_offset


def test_a_record_from_another_place_of_the_log_is_refused(
    master, replica, make_message
):
    fill(master, make_message, 20)
    [(_, data)] = bytes_of(master)
    size = int.from_bytes(data[:4], "big")
    writer = ReplicaWriter(replica)
    with pytest.raises(Diverged, match="bad offset"):
        writer.append(0, data[:size] + data[:size])
    assert writer.whole_offset == size


@pytest.mark.parametrize("junk", [b"\xff" * 64, bytes(64), b"\0\0\0\x10junkjunk" * 4])
def test_junk_is_refused_at_once(replica, junk):
    writer = ReplicaWriter(replica)
    with pytest.raises(Diverged, match="at offset 0"):
        writer.append(0, junk)
    assert writer.whole_offset == 0


def test_bytes_from_elsewhere_are_refused(master, replica, make_message):
    fill(master, make_message, 3)
    [(_, data)] = bytes_of(master)
    writer = ReplicaWriter(replica)
    writer.append(0, data)
    for offset in (0, len(data) - 1, len(data) + 1):
        with pytest.raises(Diverged, match=f"at offset {offset}: "):
            writer.append(offset, b"more")


def test_another_file_size_is_named(open_store, tmp_path, replica, make_message):
    master = open_store(tmp_path / "larger", commit_log_file_size=2 * FILE_SIZE)
    fill(master, make_message, 250)
    writer = ReplicaWriter(replica)
    with pytest.raises(Diverged, match="mappedFileSizeCommitLog"):
        copy(master, writer, iter(lambda: 4_000, 0))


def test_a_topic_that_was_made_again_begins_again(master, replica, make_message):
    writer = ReplicaWriter(replica)
    fill(master, make_message, 40)
    copy(master, writer)
    master.delete_topic("A")()
    fill(master, make_message, 40, seed=2)
    copy(master, writer)
    assert entries_of(replica) == entries_of(master)
    assert replica.queues.get("A", 0).next_offset == 10


def test_a_log_may_begin_with_the_oldest_file_of_the_master(
    master, replica, make_message
):
    fill(master, make_message, 700)
    first = master.log.files.files[1].base_offset
    writer = ReplicaWriter(replica)
    writer.append(first, b"")
    writer.received_offset = first
    copy(master, writer)
    assert replica.log.min_offset == first
    for (topic, queue_id), entries in entries_of(replica).items():
        kept = [
            each for each in entries_of(master)[topic, queue_id] if each[0] >= first
        ]
        assert entries == kept


def test_the_tail_is_the_last_record(master, replica, make_message):
    writer = ReplicaWriter(replica)
    assert writer.tail() is None
    for count in (1, 100, 500):
        fill(master, make_message, count)
        copy(master, writer)
        offset, data = writer.tail()
        end = replica.log.end_offset
        assert offset + len(data) == end
        assert data == logs_of(master)[0][offset:end]
        assert int.from_bytes(data[:4], "big") == len(data)


def test_a_file_whose_disk_has_changed_its_only_record_has_no_tail(
    master, replica, make_message
):
    """The slave names it and tries again; it is no reason to end the process."""
    writer = ReplicaWriter(replica)
    fill(master, make_message, 1)
    copy(master, writer)
    (file,) = replica.log.files.files
    path = Path(file.path)
    intact = path.read_bytes()
    path.write_bytes(bytes(len(intact)))
    with pytest.raises(StoreError, match="no whole record any more"):
        writer.tail()
    path.write_bytes(intact)


def test_a_blank_record_may_follow_the_last_one(master, replica, make_message):
    fill(master, make_message, 700)
    writer = ReplicaWriter(replica)
    start, data = next(bytes_of(master))
    writer.append(start, data)
    assert writer.whole_offset == FILE_SIZE
    offset, tail = writer.tail()
    size = int.from_bytes(tail[:4], "big")
    assert offset + len(tail) == FILE_SIZE
    assert size < len(tail)
    assert int.from_bytes(tail[size : size + 4], "big") == len(tail) - size


def test_a_kill_leaves_whole_records(master, replica, make_message, open_store):
    fill(master, make_message, 300)
    writer = ReplicaWriter(replica)
    copy(master, writer, iter(lambda: 1_111, 0))
    expected = entries_of(replica), replica.log.end_offset
    folder = replica.config.root_path
    replica.directory.release()
    again = open_store(
        folder, commit_log_file_size=FILE_SIZE, broker_role=BrokerRole.SLAVE
    )
    assert (entries_of(again), again.log.end_offset) == expected
    assert ReplicaWriter(again).received_offset == expected[1]


def test_a_replica_takes_no_messages(replica, make_message):
    result = replica.writes.put(make_message())
    assert not result.end_offset
    assert "this broker is a slave" in replica.durability.refuse_reason
