"""A damaged log gets its bytes from a peer before it opens; real stores and sockets."""

import shutil
import socket
import struct
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import RecoverFromReplicas, ReplicationConfig
from rmq.cluster.epochs import EpochFile
from rmq.cluster.healing import LogHealer
from rmq.cluster.identity import GroupPlace
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Epoch, Handshake
from rmq.remoting.listener import open_listener
from rmq.store.message_store import MessageStore
from rmq.store.patch import LogPatch
from rmq.testing.clocks import ManualClock
from tests.cluster.conftest import FILE_SIZE, HOST, LOCAL, bytes_of, put, serving
from tests.waiting import until

PATIENCE_S = 60
"""The default of rmq.damagePatienceMs."""

CONTROLLED = pytest.mark.parametrize("is_controlled", [False, True])


class Names:
    """Brokers that answer nothing but on their HA ports."""

    def __init__(self, *ha_ports):
        self.ha_ports = ha_ports

    async def find_addresses(self):
        return [f"{LOCAL}:{port}" for port in self.ha_ports]

    async def find_log_address(self, address):
        return address


class Copy:
    """A copy of a store, as a kill leaves it, to be damaged and opened again."""

    def __init__(self, store, name, epochs=()):
        self.config = type(store.config)(
            **store.config.__dict__ | {"root_dir": str(store.directory.root) + name}
        )
        self.root = self.config.root_path
        shutil.copytree(store.directory.root, self.root)
        self.place = GroupPlace(2, self.root / "epochs")
        write_epochs(self.place.epoch_path, epochs)

    def path(self, number):
        return self.root / "commitlog" / f"{number * FILE_SIZE:020d}"

    def flip(self, offset, bit=1):
        path = self.path(offset // FILE_SIZE)
        data = bytearray(path.read_bytes())
        data[offset % FILE_SIZE] ^= bit
        path.write_bytes(bytes(data))

    async def open(self, names, *, is_controlled=False, **keys):
        with await open_listener(LOCAL, 0) as listening:
            store = await self.healer(listening, names, is_controlled, keys).open(
                partial(
                    MessageStore.open,
                    self.config,
                    clock=ManualClock(),
                    store_host=HOST,
                )
            )
        return store

    def healer(self, listening, names, is_controlled=False, keys=None):
        keys = dict(keys or {})
        if is_controlled:
            keys |= {"is_controlled": True, "controller_addresses": "h:1"}
        return LogHealer(
            ReplicationConfig(**keys),
            self.config,
            names,
            listening,
            place=self.place if is_controlled else None,
        )


def write_epochs(path, epochs):
    found = EpochFile(path)
    for each in epochs:
        found.begin(each)
    return found


def control_of(tmp_path, *epochs):
    found = write_epochs(tmp_path / "epochs of the peer", epochs or [Epoch(1, 0)])
    return TermState(Handshake(1), found.last_number, found, Watermark())


@asynccontextmanager
async def source(store, tmp_path, is_controlled, *epochs):
    control = control_of(tmp_path, *epochs) if is_controlled else None
    async with serving(store, control=control) as (_, port):
        yield Names(port)


def records_of(store):
    """Offsets of the records of the first queue."""
    queue = store.queues.get("T", 0)
    return [queue.entry_at(at)[0] for at in range(queue.next_offset)]


def is_same(healed, store):
    """Whether two stores have the same log, and serve it."""
    counts = [
        [each.queues.get("T", queue).next_offset for queue in range(3)]
        for each in (healed, store)
    ]
    return bytes_of(healed) == bytes_of(store) and counts[0] == counts[1]


async def heal(store, copy, tmp_path, is_controlled, limit_s=10):
    """Open a damaged copy with the store as its peer."""
    async with source(store, tmp_path, is_controlled) as names:
        with trio.fail_after(limit_s):
            healed = await copy.open(names, is_controlled=is_controlled)
    try:
        assert is_same(healed, store)
    finally:
        healed.close()


@pytest.fixture
def filled(store):
    put(store, 600)
    assert len(store.log.files.files) > 2
    return store


@pytest.fixture
def copy(filled):
    return Copy(filled, "-copy", [Epoch(1, 0)])


@CONTROLLED
@pytest.mark.parametrize("at", [0, 3, 5, 30, 88, 95])
async def test_a_changed_record_is_replaced(filled, copy, tmp_path, is_controlled, at):
    copy.flip(records_of(filled)[-20] + at)
    await heal(filled, copy, tmp_path, is_controlled)
    assert list((copy.root / "damaged").iterdir())


@CONTROLLED
async def test_several_places_are_healed_in_one_start(
    filled, copy, tmp_path, is_controlled
):
    records = records_of(filled)
    for number in (-2, -20, -21, -40):
        copy.flip(records[number] + 5)
    await heal(filled, copy, tmp_path, is_controlled)


@CONTROLLED
@pytest.mark.parametrize("number", [0, 1, -1])
async def test_a_missing_file_comes_back(filled, copy, tmp_path, is_controlled, number):
    count = len(filled.log.files.files)
    copy.path(number % count).unlink()
    await heal(filled, copy, tmp_path, is_controlled)


@CONTROLLED
async def test_a_file_of_another_length_is_written_again(
    filled, copy, tmp_path, is_controlled
):
    for number in (1, len(filled.log.files.files) - 1):
        path = copy.path(number)
        path.write_bytes(path.read_bytes()[:5000])
    await heal(filled, copy, tmp_path, is_controlled)


async def test_the_whole_log_comes_back_in_a_group(filled, copy, tmp_path):
    for path in (copy.root / "commitlog").iterdir():
        path.unlink()
    await heal(filled, copy, tmp_path, is_controlled=True)


@CONTROLLED
async def test_zeros_to_the_end_of_a_file_are_filled(
    filled, copy, tmp_path, is_controlled
):
    path = copy.path(1)
    path.write_bytes(path.read_bytes()[: FILE_SIZE - 6000] + bytes(6000))
    await heal(filled, copy, tmp_path, is_controlled)


@CONTROLLED
@pytest.mark.parametrize("side", [-1, 1])
async def test_a_record_that_is_changed_where_no_check_covers_it(
    filled, copy, tmp_path, is_controlled, side
):
    """Beside the damage, as a page of zeros leaves it."""
    place = records_of(filled)[-20]
    queues = [filled.queues.get("T", number) for number in range(3)]
    offsets = sorted(
        queue.entry_at(at)[0] for queue in queues for at in range(queue.next_offset)
    )
    copy.flip(place + 5)
    copy.flip(offsets[offsets.index(place) + side] + 17)
    await heal(filled, copy, tmp_path, is_controlled)


async def test_it_waits_until_a_peer_is_there(filled, copy, tmp_path, caplog):
    copy.flip(records_of(filled)[-20] + 5)
    names = Names()
    done = []

    async def open_copy():
        done.append(await copy.open(names))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(open_copy)
        await until(lambda: "no other broker of this group is known" in caplog.text)
        assert not done
        async with source(filled, tmp_path, is_controlled=False) as found:
            names.ha_ports = found.ha_ports
            await until(lambda: done)
    healed = done[0]
    assert is_same(healed, filled)
    healed.close()


async def reset_all(listening):
    """Accept connections, and reset each."""
    while True:
        await trio.lowlevel.wait_readable(listening)
        connected, _ = listening.accept()
        linger = struct.pack("ii", 1, 0)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connected.close()


@CONTROLLED
async def test_a_peer_that_resets_connections_is_asked_again(
    filled, copy, tmp_path, is_controlled, caplog
):
    copy.flip(records_of(filled)[-20] + 5)
    names = Names()
    async with trio.open_nursery() as nursery:
        listening = await open_listener(LOCAL, 0)
        with listening:
            nursery.start_soon(reset_all, listening)
            names.ha_ports = (listening.getsockname()[1],)
            opening = partial(copy.open, names, is_controlled=is_controlled)
            nursery.start_soon(opening)
            await until(lambda: "has given the missing bytes" in caplog.text)
            nursery.cancel_scope.cancel()
    await heal(filled, copy, tmp_path, is_controlled)


async def test_a_peer_with_another_log_changes_nothing(
    filled, copy, open_store, caplog
):
    other = open_store("other")
    put(other, 600, seed=1)
    copy.flip(records_of(filled)[-20] + 5)
    before = {path: path.read_bytes() for path in (copy.root / "commitlog").iterdir()}
    async with serving(other) as (_, port), trio.open_nursery() as nursery:
        nursery.start_soon(copy.open, Names(port))
        await until(lambda: "it does not have this log's record at" in caplog.text)
        nursery.cancel_scope.cancel()
    assert {path: path.read_bytes() for path in before} == before


async def test_the_second_peer_is_asked_if_the_first_has_another_log(
    filled, copy, open_store
):
    other = open_store("other")
    put(other, 600, seed=1)
    copy.flip(records_of(filled)[-20] + 5)
    async with serving(other) as (_, wrong), serving(filled) as (_, right):
        with trio.fail_after(10):
            healed = await copy.open(Names(wrong, right))
    assert is_same(healed, filled)
    healed.close()


async def test_two_damaged_members_heal_each_other(filled):
    copies = [Copy(filled, name, [Epoch(1, 0)]) for name in "ab"]
    records = records_of(filled)
    places = records[-40], records[-20]
    for copy, place in zip(copies, places, strict=True):
        copy.flip(place + 5)
    done = {}

    async def run(copy, listening, names):
        healer = copy.healer(listening, names, is_controlled=True)
        done[copy] = await healer.open(
            partial(
                MessageStore.open,
                copy.config,
                clock=ManualClock(),
                store_host=HOST,
            )
        )
        control = TermState(
            Handshake(2), 1, EpochFile(copy.place.epoch_path), Watermark()
        )
        async with serving(done[copy], control=control) as (_, port):
            names.mine.ha_ports = (port,)
            await until(lambda: len(done) == 2)

    with await open_listener(LOCAL, 0) as one, await open_listener(LOCAL, 0) as two:
        ports = [each.getsockname()[1] for each in (one, two)]
        names = [Names(ports[1]), Names(ports[0])]
        names[0].mine, names[1].mine = names[1], names[0]
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(run, copies[0], one, names[0])
                nursery.start_soon(run, copies[1], two, names[1])
    for store in done.values():
        assert is_same(store, filled)
        store.close()


# -- with epochs


async def test_what_a_newer_epoch_replaced_is_cut(store, open_store, tmp_path):
    """The group has gone on without this broker: its damaged end does not count."""
    fork = put(store, 100)
    peer = open_store_copy(store, open_store, "peer")
    put(store, 100)
    copy = Copy(store, "-copy", [Epoch(1, 0)])
    copy.flip(records_of(store)[-10] + 5)
    put(peer, 50, seed=2)
    epochs = Epoch(1, 0), Epoch(2, fork)
    async with source(peer, tmp_path, True, *epochs) as names:
        with trio.fail_after(10):
            healed = await copy.open(names, is_controlled=True)
    assert bytes_of(healed) == bytes_of(store, 0, fork)
    assert list((copy.root / "cut").iterdir())
    healed.close()


def open_store_copy(store, open_store, name):
    shutil.copytree(store.directory.root, store.directory.root.with_name(name))
    return open_store(name)


async def test_what_is_before_a_newer_epoch_is_healed(store, open_store, tmp_path):
    put(store, 100)
    place = records_of(store)[-10]
    fork = store.log.end_offset
    peer = open_store_copy(store, open_store, "peer")
    put(store, 100)
    copy = Copy(store, "-copy", [Epoch(1, 0)])
    copy.flip(place + 5)
    copy.flip(records_of(store)[-10] + 5)
    put(peer, 50, seed=2)
    epochs = Epoch(1, 0), Epoch(2, fork)
    async with source(peer, tmp_path, True, *epochs) as names:
        with trio.fail_after(10):
            healed = await copy.open(names, is_controlled=True)
    assert bytes_of(healed) == bytes_of(store, 0, fork)
    healed.close()


async def test_what_the_group_has_confirmed_is_not_cut(
    store, open_store, tmp_path, caplog
):
    """The peer was elected although it lacks confirmed messages: it is the damaged."""
    fork = put(store, 100)
    peer = open_store_copy(store, open_store, "peer")
    store.claim.confirm_by(Watermark(1 << 40))
    put(store, 100)
    copy = Copy(store, "-copy", [Epoch(1, 0)])
    copy.flip(records_of(store)[-10] + 5)
    put(peer, 50, seed=2)
    epochs = Epoch(1, 0), Epoch(2, fork)
    async with source(peer, tmp_path, True, *epochs) as names:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(copy.open, names, is_controlled=True))
            await until(lambda: "that broker has lost messages" in caplog.text)
            nursery.cancel_scope.cancel()
        with trio.fail_after(10):
            given_up = await copy.open(names, is_controlled=True, may_discard=True)
    assert given_up.log.end_offset == fork
    given_up.close()


async def test_without_a_controller_the_log_is_cut_in_the_end(filled, copy):
    copy.config.__dict__["damage_patience_ms"] = 300
    place = records_of(filled)[-20]
    copy.flip(place + 5)
    with trio.fail_after(10):
        opened = await copy.open(Names())
    assert opened.log.end_offset == place
    assert any("it is truncated there" in line for line in opened.recovery.lines())
    opened.close()


async def test_a_slow_recovery_is_no_reason_to_cut(
    filled, copy, tmp_path, monkeypatch, mock_clock
):
    own = MessageStore.open

    def open_slowly(*arguments, **keys):
        mock_clock.jump(2 * PATIENCE_S)
        return own(*arguments, **keys)

    monkeypatch.setattr(MessageStore, "open", open_slowly)
    copy.flip(records_of(filled)[-20] + 5)
    await heal(filled, copy, tmp_path, False, limit_s=1000)


async def test_a_slow_transfer_is_no_reason_to_cut(
    filled, copy, tmp_path, monkeypatch, mock_clock
):
    own, sent = LogPatch.write, []

    def write_slowly(patch, offset, data):
        own(patch, offset, data)
        mock_clock.jump(PATIENCE_S * 0.7)
        sent.append(offset)
        if len(sent) == 2:
            raise OSError("the peer is gone, and another one has to go on")

    monkeypatch.setattr(LogPatch, "write", write_slowly)
    copy.path(1).unlink()
    async with source(filled, tmp_path, is_controlled=False) as names:
        names.ha_ports *= 2
        with trio.fail_after(1000):
            healed = await copy.open(names)
    assert len(sent) > 3
    assert is_same(healed, filled)
    healed.close()


@pytest.mark.parametrize("key", ["REQUIRED", "a controller", "patience"])
async def test_it_may_wait_without_a_limit(filled, copy, key):
    patience_ms = 0 if key == "patience" else 100
    copy.config.__dict__["damage_patience_ms"] = patience_ms
    copy.flip(records_of(filled)[-20] + 5)
    keys = {"recover_from_replicas": RecoverFromReplicas.REQUIRED}
    if key != "REQUIRED":
        keys = {"is_controlled": key == "a controller"}
    with trio.move_on_after(0.5) as scope:
        await copy.open(Names(), **keys)
    assert scope.cancelled_caught


async def test_a_peer_of_another_history_gives_nothing(filled, copy, tmp_path, caplog):
    copy.flip(records_of(filled)[-20] + 5)
    async with (
        source(filled, tmp_path, True, Epoch(7, 0)) as names,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(copy.open, names, is_controlled=True))
        await until(lambda: "no epoch of its log" in caplog.text)
        nursery.cancel_scope.cancel()


async def test_a_full_disk_is_no_reason_to_end(filled, copy, tmp_path, monkeypatch):
    """It tries again when there is room."""
    copy.path(1).unlink()
    import os

    own, full = os.pwrite, [True]

    def pwrite(descriptor, data, position):
        if full and "commitlog" in os.readlink(f"/proc/self/fd/{descriptor}"):
            full.clear()
            raise OSError(28, "No space left on device")
        return own(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    await heal(filled, copy, tmp_path, is_controlled=True)
    assert not full
