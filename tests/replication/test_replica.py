"""What a slave does with masters, good ones and others."""

from functools import partial

import pytest
import trio

from rmq.replication.replica import Bounds
from rmq.store.replica_writer import ReplicaWriter
from tests.replication.conftest import (
    HEAD,
    LOCAL,
    bytes_of,
    following,
    put,
    serving,
    until,
)


class FakeMaster:
    """A master by hand: it answers the first report with any bytes."""

    def __init__(self, answer):
        self._answer = answer
        self.reports = []

    async def serve(self, stream):
        with trio.CancelScope():
            try:
                first = int.from_bytes(await stream.receive_some(8), "big")
                self.reports.append(first)
                await stream.send_all(self._answer(first))
                while data := await stream.receive_some(8):
                    self.reports.append(int.from_bytes(data, "big"))
            except trio.BrokenResourceError:
                pass


@pytest.fixture
async def play(nursery):
    async def start(answer):
        master = FakeMaster(answer)
        listeners = await nursery.start(
            partial(trio.serve_tcp, master.serve, 0, host=LOCAL)
        )
        return master, listeners[0].socket.getsockname()[1]

    return start


def frame(offset, data):
    return HEAD.pack(offset, len(data)) + data


def slice_from(store):
    return lambda at: frame(at, bytes_of(store, at))


async def test_it_copies_the_whole_log(store, slave_store):
    end = put(store, 800)
    async with serving(store) as (primary, port), following(slave_store, port) as copy:
        await until(lambda: copy.end_offset == end)
        assert bytes_of(slave_store) == bytes_of(store)
        await until(lambda: primary.acks.in_sync(end, 1) == 1)
        assert copy.is_following
        assert copy.state.startswith("following ")
        end = put(store, 10)
        primary.push()
        await until(lambda: copy.end_offset == end)


async def test_it_goes_on_after_a_break(store, slave_store):
    for _ in range(3):
        end = put(store, 300)
        async with serving(store) as (_, port), following(slave_store, port) as copy:
            await until(lambda end=end, copy=copy: copy.end_offset == end)
    assert bytes_of(slave_store) == bytes_of(store)


async def test_it_begins_with_the_oldest_message_of_its_master(store, slave_store):
    end = put(store, 800)
    file = store.log.files.files.pop(0)
    file.unlink()
    file.close()
    oldest = store.log.min_offset
    async with (
        serving(store) as (_, port),
        following(slave_store, port, lambda: Bounds(oldest, end)) as copy,
    ):
        await until(lambda: copy.end_offset == end)
    assert slave_store.log.min_offset == oldest
    assert bytes_of(slave_store, oldest) == bytes_of(store, oldest)


async def test_it_reports_what_is_durable_under_sync_flush(store, slave_store):
    end = put(store, 20)
    durable = slave_store.durability.durable
    async with (
        serving(store) as (primary, port),
        following(slave_store, port, durable=durable) as copy,
    ):
        await until(lambda: copy.end_offset == end)
        await trio.sleep(0.05)
        assert primary.statuses()[0].acknowledged < end
        slave_store.durability.flush()
        await until(lambda: primary.statuses()[0].acknowledged == end)


async def test_a_master_that_lost_the_end_is_not_followed(store, slave_store, caplog):
    end = put(store, 20)
    writer = ReplicaWriter(slave_store)
    writer.append(0, bytes_of(store))
    more = put(store, 5)
    writer.append(end, bytes_of(store, end))
    store.log.file.write_position = end  # a power cut took it
    async with (
        serving(store) as (_, port),
        following(slave_store, port, lambda: Bounds(0, end)) as copy,
    ):
        await until(lambda: "has what the master lost" in copy.state)
        assert f"this log ends at {more}, the master's at {end}" in copy.state
        assert not copy.is_following
    assert slave_store.log.end_offset == more
    assert caplog.text.count("has what the master lost") == 1


async def test_a_fork_is_not_followed_and_nothing_is_cut(store, slave_store):
    end = put(store, 20)
    ReplicaWriter(slave_store).append(0, bytes_of(store))
    store.log.file.write_position = 0
    put(store, 40, seed="fork")
    before = bytes_of(slave_store)
    async with serving(store) as (primary, port), following(slave_store, port) as copy:
        await until(lambda: "not the beginning of the master's" in copy.state)
        assert primary.acks.replicated() < end
    assert bytes_of(slave_store) == before


async def test_a_log_older_than_the_oldest_file_is_explained(store, slave_store):
    put(store, 20)
    ReplicaWriter(slave_store).append(0, bytes_of(store))
    put(store, 800)
    for _ in range(2):
        file = store.log.files.files.pop(0)
        file.unlink()
        file.close()
    bounds = Bounds(store.log.min_offset, store.log.end_offset)
    async with (
        serving(store) as (_, port),
        following(slave_store, port, lambda: bounds) as copy,
    ):
        await until(lambda: "the oldest message of the master" in copy.state)
        assert not copy.is_following


# -- masters that send what they should not


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda at: HEAD.pack(at, -1), "it sent a frame of -1 bytes"),
        (lambda at: HEAD.pack(at, 1 << 30), f"it sent a frame of {1 << 30} bytes"),
        (lambda at: frame(at + 5, b"\xff" * 99), "the master begins there instead"),
        (lambda at: frame(at, b"\xff" * 99), "no record is there: bad magic"),
        (lambda at: frame(at, bytes(99)), "no record is there"),
    ],
)
async def test_garbage_is_refused_with_a_sentence(slave_store, play, answer, sentence):
    master, port = await play(answer)
    async with following(slave_store, port) as copy:
        await until(lambda: sentence in copy.state)
    assert slave_store.log.end_offset == 0
    assert set(master.reports) <= {1}


async def test_a_mangled_record_is_not_acknowledged(store, slave_store, play):
    put(store, 20)
    data = bytearray(bytes_of(store))
    data[-20] ^= 1  # of the last body
    size = len(data)

    def answer(at):
        return frame(at, bytes(data[at:]))

    master, port = await play(answer)
    async with following(slave_store, port) as copy:
        await until(lambda: "no record is there" in copy.state)
        assert copy.end_offset < size
    assert max(master.reports) < size


async def test_a_record_in_pieces_is_acknowledged_when_it_is_whole(
    store, slave_store, play
):
    end = put(store, 1)
    data = bytes_of(store)
    master, port = await play(lambda at: frame(at, data[at : end - 1]))
    async with following(slave_store, port) as copy:
        await until(lambda: len(master.reports) >= 3)
        assert copy.end_offset == 0
    assert set(master.reports) == {1}


async def test_a_silent_master_is_left(slave_store, play):
    _, port = await play(lambda _at: b"")
    async with following(slave_store, port, ha_silence_limit_ms=50) as copy:
        await until(lambda: "silent for 0.05 s" in copy.state)


async def test_without_a_master_it_says_so(slave_store):
    async with following(slave_store, 1) as copy:
        await until(lambda: f"master {LOCAL}:1: " in copy.state)
        assert not copy.is_following
