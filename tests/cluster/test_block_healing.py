"""Bad blocks of a log that is open get the bytes of another broker."""

import os

import pytest
import trio

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.cluster.block_healing import BlockHealer
from rmq.cluster.config import ReplicationConfig
from rmq.core.errors import RecordDamaged
from rmq.store.config import BrokerRole, OnDamage
from rmq.testing import ClusterThreads
from tests.cluster.conftest import bytes_of, following, put, serving
from tests.cluster.test_healing import CONTROLLED, Names, open_store_copy, source
from tests.cluster.test_pair import context_of
from tests.waiting import until, wait_until

FILE_SIZE = 4 * BLOCK_BYTES
CONFIG = ReplicationConfig()


@pytest.fixture
def pair(open_store):
    """Two stores with the same log, whose blocks are sealed."""
    store = open_store(commit_log_file_size=FILE_SIZE)
    put(store, 1500)
    assert len(store.log.files.files) > 1
    other = open_store_copy(
        store, lambda name: open_store(name, commit_log_file_size=FILE_SIZE), "other"
    )
    for each in (store, other):
        each.durability.flush()
        each.digests.update()
        assert each.log.files.files[0].digests.sealed == 4
    return store, other


def flip(store, offset):
    """Change a bit on the disk; no reader has checked the block since."""
    file = store.log.files.find(offset)
    position = offset - file.base_offset
    [byte] = file.read(position, 1)
    descriptor = os.open(file.path, os.O_RDWR)
    os.pwrite(descriptor, bytes([byte ^ 4]), position)
    os.close(descriptor)
    file.digests.forget_checks()
    return offset - position % BLOCK_BYTES


def report(store, begin):
    store.digests.report(begin)
    return store.digests.bad[begin]


@CONTROLLED
async def test_blocks_get_the_bytes_of_a_peer(pair, tmp_path, is_controlled):
    store, other = pair
    before = bytes_of(store)
    places = 100, BLOCK_BYTES + 5, FILE_SIZE + 700
    for place in places:
        store.digests.report(flip(store, place))
    assert bytes_of(store) != before
    async with source(other, tmp_path, is_controlled) as names:
        healer = BlockHealer(CONFIG, store.digests, names, 2 if is_controlled else None)
        with trio.fail_after(10):
            await healer.heal_all()
    assert bytes_of(store) == before
    assert store.digests.healed_bytes == 3 * BLOCK_BYTES
    assert [store.log.reader.find_bad(place, 1) for place in places] == [-1] * 3


async def test_a_peer_with_other_bytes_is_asked_again(pair, tmp_path, autojump_clock):
    """It is damaged at the same place, and heals in the meantime."""
    store, other = pair
    block = report(store, flip(store, 100))
    right = other.log.read(0, BLOCK_BYTES)

    class Peers(Names):
        """The bytes of a log without its HA port."""

        async def find_addresses(self):
            return ["h:1"]

    healer = BlockHealer(CONFIG, store.digests, Peers(), None)
    answers = [bytes(BLOCK_BYTES), b"few", right]

    async def read_block(address, found):
        assert (address, found) == ("h:1", block)
        return answers.pop(0)

    healer.read_block = read_block
    await healer.heal_all()
    assert not answers
    assert bytes_of(store) == bytes_of(other)


async def test_without_a_peer_the_reason_is_named(pair, autojump_clock):
    store, _ = pair
    block = report(store, flip(store, 100))
    with trio.move_on_after(5):
        await BlockHealer(CONFIG, store.digests, Names(), None).heal_all()
    assert str(block).endswith(": no other broker of this group is known")


async def test_a_peer_is_read_at_a_bounded_rate(pair, tmp_path, mock_clock):
    """Three blocks at 64 KiB a second."""
    store, other = pair
    mock_clock.rate = 100
    for number in range(3):
        store.digests.report(flip(store, number * BLOCK_BYTES + 5))
    config = ReplicationConfig(heal_bytes_per_s=BLOCK_BYTES)
    async with source(other, tmp_path, False) as names:
        begun_s = trio.current_time()
        await BlockHealer(config, store.digests, names, None).heal_all()
    assert bytes_of(store) == bytes_of(other)
    assert trio.current_time() - begun_s > 2


async def test_the_rate_counts_the_time_of_the_answer(pair, autojump_clock):
    """Three blocks at 64 KiB a second, from a peer that needs three quarters of it."""
    store, other = pair
    for number in range(3):
        store.digests.report(flip(store, number * BLOCK_BYTES + 5))

    class Peers(Names):
        async def find_addresses(self):
            return ["h:1"]

    config = ReplicationConfig(heal_bytes_per_s=BLOCK_BYTES)
    healer = BlockHealer(config, store.digests, Peers(), None)

    async def read_block(_, block):
        await trio.sleep(0.75)
        return other.log.read(block.begin, BLOCK_BYTES)

    healer.read_block = read_block
    begun_s = trio.current_time()
    await healer.heal_all()
    assert trio.current_time() - begun_s == pytest.approx(3)
    assert bytes_of(store) == bytes_of(other)


def test_a_block_that_has_healed_meanwhile_is_read(open_store):
    """A reader has found it bad; `rmq.onDamage=stop` is for those that stay bad."""
    store = open_store(commit_log_file_size=FILE_SIZE, on_damage=OnDamage.STOP)
    put(store, 10)
    record = store.log.reader.read_record(0)
    assert store.digests.read_damaged(RecordDamaged(0, 0)) == record


async def test_a_source_ends_the_link_at_a_bad_block(pair, open_store, caplog):
    """A new slave gets what is right, and goes on after the block has healed."""
    store, other = pair
    sizes = {"commit_log_file_size": FILE_SIZE}
    slave_store = open_store("slave", broker_role=BrokerRole.SLAVE, **sizes)
    begin = flip(store, BLOCK_BYTES + 5)
    async with serving(store) as (_, port), following(slave_store, port):
        await until(lambda: f"is damaged at {begin}" in caplog.text)
        assert slave_store.log.end_offset <= begin
        assert list(store.digests.bad) == [begin]
        block = store.digests.bad[begin]
        assert store.digests.repair(begin, other.log.read(begin, BLOCK_BYTES))
        store.digests.end_repair(block, "h:1")
        await until(lambda: slave_store.log.end_offset == store.log.end_offset)
    assert bytes_of(slave_store) == bytes_of(store)


@pytest.mark.parametrize("which", ["master", "slave"])
def test_a_broker_heals_while_it_runs(tmp_path, which):
    """Each member gets the bytes of the other, and every message is served."""
    more = {"mappedFileSizeCommitLog": "262144", "haSendHeartbeatInterval": "200"}
    with ClusterThreads(tmp_path, more | {"maxMessageSize": "8192"}) as cluster:
        for number in range(300):
            cluster.master.send("T", b"%5d" % number + b"x" * 995, queue_id=0)
        cluster.catch_up()
        broker = cluster.master if which == "master" else cluster.slave
        store = context_of(broker).store
        broker.run(flush_and_seal, store)
        place, _, _ = store.queues.get("T", 0).entry_at(100)
        broker.run(flip_there, store, place + 500)
        with pytest.raises(RecordDamaged, match="gets its bytes from another one"):
            broker.messages("T")
        wait_until(lambda: not store.digests.bad)
        found = [message.body[:5] for message in broker.messages("T")]
        assert store.digests.healed_bytes == BLOCK_BYTES
        assert broker.run(find_bad_of, store, place) == -1
        assert found == [b"%5d" % number for number in range(300)]
    store.digests.on_bad()  # the run of trio that heals has ended


async def flush_and_seal(store):
    store.durability.flush()
    store.digests.update()


async def flip_there(store, offset):
    flip(store, offset)


async def find_bad_of(store, place):
    return store.log.reader.find_bad(place, 1000)
