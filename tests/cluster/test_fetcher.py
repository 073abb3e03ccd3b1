"""What a slave does with masters, good ones and others."""

from functools import partial

import pytest
import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.epochs import EpochFile
from rmq.cluster.log_source import LogBounds
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Epoch, Handshake
from rmq.store.replica_writer import ReplicaWriter
from tests.cluster.conftest import (
    HEAD,
    LOCAL,
    FixedUpstream,
    bytes_of,
    count_in_sync,
    following,
    put,
    serving,
)
from tests.waiting import until


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
        await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
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
        following(slave_store, port, lambda: LogBounds(oldest, end)) as copy,
    ):
        await until(lambda: copy.end_offset == end)
    assert slave_store.log.min_offset == oldest
    assert bytes_of(slave_store, oldest) == bytes_of(store, oldest)


async def test_it_reports_what_is_durable_under_sync_flush(store, slave_store):
    end = put(store, 20)
    durable = slave_store.positions.durable
    async with (
        serving(store) as (primary, port),
        following(slave_store, port, durable=durable) as copy,
    ):
        await until(lambda: copy.end_offset == end)
        await trio.sleep(0.05)
        assert primary.session_statuses()[0].acknowledged_offset < end
        slave_store.durability.flush()
        await until(lambda: primary.session_statuses()[0].acknowledged_offset == end)


# -- logs that have parted


def forked(store, slave_store, count, more=40):
    """Let the slave have `count` messages of the master, and others after it."""
    at = put(store, count) if count else 0
    writer = ReplicaWriter(slave_store)
    writer.append(0, bytes_of(store))
    end = put(store, 30)
    writer.append(at, bytes_of(store, at))
    truncate(store, at)
    return at, end, put(store, more, seed="fork")


def truncate(store, end):
    """Lose the end of a log in one file, as a power cut does."""
    file = store.log.file
    file.zero(end, file.size)
    file.write_position = end
    for queue in store.queues:
        queue.truncate(end)
    store.index.cut_to(end)


def bounds_of(store):
    return lambda: LogBounds(store.log.min_offset, store.log.end_offset)


def records_of(store):
    """What Java answers: the record at an offset, whatever it is."""

    def record_at(offset):
        data = bytes_of(store, offset, min(offset + 4, store.log.end_offset))
        size = int.from_bytes(data, "big")
        is_inside = 0 < size <= store.log.end_offset - offset
        return bytes_of(store, offset, offset + size) if is_inside else None

    return record_at


def java(store, port, **more):
    """An upstream that answers with any record."""

    def bounds():
        return bounds_of(store)()._replace(serves_records=True)

    return FixedUpstream(port, bounds, records=records_of(store), **more)


@pytest.mark.parametrize("of_java", [False, True])
async def test_a_master_that_lost_the_end_is_not_followed(
    store, slave_store, caplog, of_java
):
    end = put(store, 20)
    writer = ReplicaWriter(slave_store)
    writer.append(0, bytes_of(store))
    more = put(store, 5)
    writer.append(end, bytes_of(store, end))
    truncate(store, end)
    async with serving(store) as (_, port):
        upstream = java(store, port, is_promised=False) if of_java else None
        async with following(
            slave_store, port, bounds_of(store), upstream=upstream, cuts=True
        ) as copy:
            await until(lambda: "has messages that the master lost" in copy.state)
            assert f"this log ends at {more}, the master's at {end}" in copy.state
            assert not copy.is_following
    assert slave_store.log.end_offset == more
    assert caplog.text.count("has messages that the master lost") == 1


async def test_without_permission_a_promised_fork_is_not_cut(store, slave_store):
    at, end, _ = forked(store, slave_store, 20)
    before = bytes_of(slave_store)
    async with (
        serving(store) as (primary, port),
        following(slave_store, port, bounds_of(store), cuts=True) as copy,
    ):
        await until(lambda: f"the logs differ from offset {at}" in copy.state)
        assert f"{end - at} bytes after it are on this broker only" in copy.state
        assert "rmq.replicaMayDiscard=true" in copy.state
        assert primary.acks.replicated_offset() == 0
    assert bytes_of(slave_store) == before


@pytest.mark.parametrize("of_java", [False, True])
@pytest.mark.parametrize("more", [1, 30, 60])
async def test_a_fork_that_nobody_was_promised_is_cut(
    store, slave_store, caplog, more, of_java
):
    at, end, new_end = forked(store, slave_store, 20, more)
    async with serving(store) as (_, port):
        upstream = FixedUpstream(port, bounds_of(store), is_promised=False)
        if of_java:
            upstream = java(store, port, is_promised=False)
        async with following(slave_store, port, upstream=upstream, cuts=True) as copy:
            await until(lambda: copy.is_following and copy.end_offset == new_end)
    assert bytes_of(slave_store) == bytes_of(store)
    assert f"differ from offset {at} on: truncating {end - at} bytes" in caplog.text
    [kept] = slave_store.directory.cut.iterdir()
    assert int(kept.name) == at
    assert f"saved in {kept}, among them 30 complete records" in caplog.text


async def test_an_epoch_that_its_master_has_written_twice_does_not_stop_a_slave(
    store, slave_store, caplog
):
    """A master lost its power, and went on in its epoch.

    Its slave has what was before; one of them is the next master, and by their epochs
    the logs part in a record of the other one.
    """
    at, end, _ = forked(store, slave_store, 20, more=10)
    controls = control_of(store, 1), control_of(slave_store, 2)
    point = store.log.end_offset
    assert at < point < end
    assert not ReplicaWriter(slave_store).ends_record(point)
    controls[0].enter_epoch(Epoch(2, point))
    end_now = put(store, 5)
    async with (
        serving(store, control=controls[0]) as (_, port),
        following(
            slave_store, port, bounds_of(store), cuts=True, control=controls[1]
        ) as copy,
    ):
        await until(lambda: copy.is_following and copy.end_offset == end_now)
    assert bytes_of(slave_store) == bytes_of(store)
    assert f"differ from offset {at} on: truncating {end - at} bytes" in caplog.text
    assert controls[0].epochs.all_epochs() == controls[1].epochs.all_epochs()


@pytest.mark.parametrize("is_allowed", [False, True])
async def test_what_a_group_has_confirmed_is_cut_by_an_operator_only(
    store, slave_store, is_allowed
):
    """A member with a damaged log was elected, and the others cut theirs."""
    at, end, _ = forked(store, slave_store, 20, more=10)
    controls = control_of(store, 1), control_of(slave_store, 2)
    controls[0].enter_epoch(Epoch(2, store.log.end_offset))
    end_now = put(store, 5)
    slave_store.positions.confirm_by(controls[1].visible_limit)
    controls[1].visible_limit.advance(end)
    slave_store.claim.update(end)
    async with (
        serving(store, control=controls[0]) as (_, port),
        following(
            slave_store, port, bounds_of(store), cuts=True, control=controls[1],
            may_discard=is_allowed,
        ) as copy,
    ):  # fmt: skip
        if is_allowed:
            await until(lambda: copy.is_following and copy.end_offset == end_now)
        else:
            await until(lambda: f"has confirmed this log up to {end}" in copy.state)
            assert "rmq.replicaMayDiscard=true" in copy.state
            assert not copy.is_copy
    assert slave_store.log.end_offset == (end_now if is_allowed else end)
    assert at < end


def control_of(store, broker_id):
    """What a broker knows that has begun with epoch 1, and is in epoch 2."""
    epochs = EpochFile(store.directory.root / "epochFileCheckpoint")
    epochs.begin(Epoch(1, 0))
    own = Handshake(broker_id, wants_newest_file=False, is_learner=False)
    return TermState(own, 2, epochs, Watermark())


@pytest.mark.parametrize("is_ahead", [False, True])
async def test_the_operator_may_decide_to_cut(store, slave_store, is_ahead):
    if is_ahead:
        end = put(store, 20)
        writer = ReplicaWriter(slave_store)
        writer.append(0, bytes_of(store))
        put(store, 5)
        writer.append(end, bytes_of(store, end))
        truncate(store, end)
    else:
        forked(store, slave_store, 20)
    async with (
        serving(store) as (_, port),
        following(
            slave_store, port, bounds_of(store), cuts=True, may_discard=True
        ) as copy,
    ):
        end = store.log.end_offset
        await until(lambda: copy.is_following and copy.end_offset == end)
    assert bytes_of(slave_store) == bytes_of(store)


@pytest.mark.parametrize("limit", [1, 2_000, 1 << 30])
async def test_a_log_with_nothing_in_common_is_never_cut(store, slave_store, limit):
    forked(store, slave_store, 0)
    before = bytes_of(slave_store)
    async with (
        serving(store) as (_, port),
        following(
            slave_store, port, bounds_of(store),
            cuts=True, may_discard=True, cut_limit=limit,
        ) as copy,
    ):  # fmt: skip
        await until(lambda: "no record of the master's log" in copy.state)
    assert bytes_of(slave_store) == before


async def test_more_than_the_limit_is_not_cut(store, slave_store):
    forked(store, slave_store, 20)
    async with serving(store) as (_, port):
        upstream = FixedUpstream(port, bounds_of(store), is_promised=False)
        async with following(
            slave_store, port, upstream=upstream, cuts=True, cut_limit=500
        ) as copy:
            await until(
                lambda: "the last 500 bytes of this log have no record" in copy.state
            )


async def test_a_master_that_did_not_answer_once_is_followed(store, slave_store):
    end = put(store, 20)
    ReplicaWriter(slave_store).append(0, bytes_of(store))
    async with serving(store) as (_, port):
        upstream, answers = java(store, port), records_of(store)
        upstream.records = lambda at: answers(at) if upstream.asked > 1 else None
        async with following(slave_store, port, upstream=upstream, cuts=True) as copy:
            await until(lambda: copy.is_following)
    assert slave_store.log.end_offset == end


async def test_a_fork_is_looked_for_once(store, slave_store):
    forked(store, slave_store, 20)
    async with serving(store) as (_, port):
        upstream = java(store, port)
        async with following(slave_store, port, upstream=upstream) as copy:
            await until(lambda: "the logs differ from" in copy.state)
            asked = upstream.asked
            assert 2 <= asked < 10
            put(store, 5)
            await trio.sleep(1)
            assert upstream.asked - asked <= 4  # the last record, at each attempt


async def test_a_log_older_than_the_oldest_file_is_explained(store, slave_store):
    put(store, 20)
    ReplicaWriter(slave_store).append(0, bytes_of(store))
    put(store, 800)
    for _ in range(2):
        file = store.log.files.files.pop(0)
        file.unlink()
        file.close()
    bounds = LogBounds(store.log.min_offset, store.log.end_offset)
    async with (
        serving(store) as (_, port),
        following(slave_store, port, lambda: bounds) as copy,
    ):
        await until(lambda: "the master's oldest message" in copy.state)
        assert not copy.is_following


@pytest.mark.parametrize("is_too_old", [False, True])
async def test_the_operator_may_decide_to_begin_anew(
    store, slave_store, open_store, caplog, is_too_old
):
    if is_too_old:
        put(store, 20)
        ReplicaWriter(slave_store).append(0, bytes_of(store))
        put(store, 800)
        for _ in range(2):
            file = store.log.files.files.pop(0)
            file.unlink()
            file.close()
    else:
        forked(store, slave_store, 0)
    before = bytes_of(slave_store)
    start, end = store.log.min_offset, store.log.end_offset
    async with serving(store) as (primary, port):
        keys = {"cuts": True, "may_reseed": True}
        async with following(slave_store, port, bounds_of(store), **keys) as copy:
            await until(lambda: copy.is_following and copy.end_offset == end)
            await until(lambda: count_in_sync(primary.acks, end, 1) == 1)
    assert bytes_of(slave_store, start) == bytes_of(store, start)
    assert "has no record of the log of master" in caplog.text
    assert "the previous log is in " in caplog.text
    [kept] = (slave_store.directory.root / "aside").iterdir()
    assert bytes_of(open_store(kept)) == before


async def test_it_begins_anew_once_in_a_run(store, slave_store, open_store):
    forked(store, slave_store, 0)
    other = open_store("other")
    put(other, 200, seed="other")
    master = store
    upstream = FixedUpstream(0, lambda: bounds_of(master)())
    async with following(
        slave_store, 0, upstream=upstream, cuts=True, may_reseed=True
    ) as copy:
        async with serving(store) as (_, upstream.port):
            end = store.log.end_offset
            await until(lambda: copy.is_following and copy.end_offset == end)
        master, before = other, bytes_of(slave_store)
        async with serving(other) as (_, upstream.port):
            await until(lambda: "must begin with an empty log" in copy.state)
    assert bytes_of(slave_store) == before
    assert len(list((slave_store.directory.root / "aside").iterdir())) == 1


async def test_a_shorter_log_does_not_replace_the_own_one(store, slave_store):
    forked(store, slave_store, 0, 5)
    before = bytes_of(slave_store)
    async with serving(store) as (_, port):
        keys = {"cuts": True, "may_reseed": True}
        async with following(slave_store, port, bounds_of(store), **keys) as copy:
            await until(lambda: "rmq.replicaMayDiscard=true and " in copy.state)
            assert not copy.is_following
    assert bytes_of(slave_store) == before


# -- masters that send what they should not


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda at: HEAD.pack(at, -1), "it sent a frame of -1 bytes"),
        (lambda at: HEAD.pack(at, 1 << 30), f"it sent a frame of {1 << 30} bytes"),
        (
            lambda at: frame(at + 5, b"\xff" * 99),
            "the master's log begins there instead",
        ),
        (lambda at: frame(at, b"\xff" * 99), "there is no record: bad magic"),
        (lambda at: frame(at, bytes(99)), "there is no record"),
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
        await until(lambda: "there is no record" in copy.state)
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
