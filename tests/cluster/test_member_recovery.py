"""A master that starts again in its epoch gets lost records from the other members."""

import pytest
import trio

from rmq.cluster import member_recovery, recovery
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.member_recovery import MemberRecovery
from rmq.cluster.wire import Epoch
from rmq.protocol.bodies.common import KVTable
from rmq.protocol.command import Command
from rmq.store.message_store import MessageStore
from rmq.testing.clocks import ManualClock
from tests.cluster.conftest import HOST, LOCAL, put
from tests.cluster.test_healing import Copy, Names, bytes_of, is_same, source

FIRST, SECOND = Epoch(1, 0), 2
CLOSED_PORT = 1


class Master:
    """A copy of a store as a disk that has lost its end leaves it."""

    def __init__(self, store, epochs):
        self.copy = Copy(store, "-copy", epochs)
        self.store = MessageStore.open(
            self.copy.config, clock=ManualClock(), store_host=HOST, is_copy=True
        )
        self.held_back = 0
        self.is_superseded = False

    def hold_back(self):
        self.held_back += 1
        return self.is_superseded

    async def recover(self, member, names, epoch):
        async def ask(address, request, timeout_ms):
            bounds = {
                "commitLogMinOffset": "0",
                "commitLogMaxOffset": str(member.log.end_offset),
                "rmq.replica.address": address,
            }
            return Command(0, body=KVTable(table=bounds).encode())

        found = MemberRecovery(
            ReplicationConfig(is_controlled=True, controller_addresses="h:1"),
            names,
            names.find_addresses,
            ask,
            self.copy.place,
            epoch,
            None,
            hold_back=self.hold_back,
        )
        with trio.fail_after(20):
            await found.run(self.store)


class LateNames(Names):
    """Brokers whose HA ports may change."""

    async def find_log_address(self, address):
        return f"{LOCAL}:{self.ha_ports[0]}"


@pytest.fixture
def opened():
    """Masters whose stores are closed in the end."""
    masters = []
    yield masters
    for each in masters:
        each.store.close()


@pytest.mark.parametrize("kept", [0, 50])
async def test_it_copies_what_a_member_has_in_its_epoch(store, opened, tmp_path, kept):
    put(store, kept)
    master = Master(store, [FIRST])
    opened.append(master)
    put(store, 100)
    async with source(store, tmp_path, True, FIRST) as names:
        await master.recover(store, names, FIRST.number)
    assert is_same(master.store, store)
    assert master.store.durability.is_writable
    assert not master.held_back


async def test_it_copies_an_epoch_that_its_disk_has_lost(store, opened, tmp_path):
    start = put(store, 50)
    master = Master(store, [FIRST])
    opened.append(master)
    put(store, 100)
    epochs = FIRST, Epoch(SECOND, start)
    async with source(store, tmp_path, True, *epochs) as names:
        await master.recover(store, names, SECOND)
    assert is_same(master.store, store)


async def test_it_asks_a_member_again_that_starts_at_the_same_time(
    store, opened, tmp_path
):
    master = Master(store, [FIRST])
    opened.append(master)
    put(store, 100)
    names = LateNames(CLOSED_PORT)

    async def start_late():
        await trio.sleep(0.3)
        async with source(store, tmp_path, True, FIRST) as started:
            names.ha_ports = started.ha_ports
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(start_late)
        await master.recover(store, names, FIRST.number)
        nursery.cancel_scope.cancel()
    assert is_same(master.store, store)


@pytest.mark.parametrize("case", ["away", "shorter", "newer"])
async def test_it_opens_if_no_member_has_more_of_its_epoch(
    store, opened, tmp_path, case, monkeypatch
):
    monkeypatch.setattr(member_recovery, "LINEAGES_LIMIT_S", 0.5)
    end = put(store, 50)
    master = Master(store, [FIRST])
    opened.append(master)
    put(store, 0 if case == "shorter" else 50)
    epochs = (FIRST, Epoch(SECOND, end)) if case == "newer" else (FIRST,)
    async with source(store, tmp_path, True, *epochs) as names:
        asked = Names(CLOSED_PORT) if case == "away" else names
        await master.recover(store, asked, FIRST.number)
    assert bytes_of(master.store) == bytes_of(store, 0, end)
    assert master.store.durability.is_writable


async def test_it_lets_the_controller_elect_a_member_with_another_log(
    store, open_store, opened, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(recovery, "PROVEN_LIMIT_S", 0.5)
    put(store, 50)
    master = Master(store, [FIRST])
    master.is_superseded = True
    opened.append(master)
    other = open_store("other")
    put(other, 100, seed=9)
    before = bytes_of(master.store)
    async with source(other, tmp_path, True, FIRST) as names:
        await master.recover(other, names, FIRST.number)
    assert master.held_back == 1
    assert bytes_of(master.store) == before
    assert "this broker does not open its log" in caplog.text
