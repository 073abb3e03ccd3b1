"""Who is online, and which members are notified when a group changes."""

import pytest
import trio

from rmq.broker import client_notices, clients, housekeeping
from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.tables.groups import GroupTable
from rmq.config.broker import BrokerConfig
from rmq.core.clock_steps import ClockSteps
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.heartbeat import ConsumerData, SubscriptionData
from rmq.protocol.codes import RequestCode
from rmq.protocol.frames import decode
from rmq.remoting import turns
from rmq.testing import ManualClock


class Peer:
    """A connection that keeps what it is told."""

    def __init__(self, host="10.0.0.1"):
        self.told = []
        self.is_open = True
        self.closed_for = None
        self.remote_address = f"{host}:4711"
        self.source_host = host

    def send_frame(self, frame):
        command = decode(frame)
        assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        assert command.is_oneway
        self.told.append(command.ext_fields["consumerGroup"])

    def close(self, reason):
        self.closed_for = reason


@pytest.fixture
def groups(tmp_path):
    return GroupTable(tmp_path, ManualClock(), BrokerConfig())


@pytest.fixture
def consumers(groups):
    return ConsumerTable(groups, notifies=True, on_gone=print)


def data(*topics, group="G", model="CLUSTERING", version=0):
    return ConsumerData(
        group_name=group,
        consume_type="CONSUME_PASSIVELY",
        message_model=model,
        consume_from_where="CONSUME_FROM_LAST_OFFSET",
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version)
            for topic in topics
        ],
    )


def join(table, peer, wanted, client_id="c", now_ms=0):
    return table.register(wanted, client_id, peer, "JAVA", 513, now_ms)


def test_a_change_is_announced_at_once_and_those_after_it_together(consumers):
    one, two = Peer(), Peer()
    is_changed = join(consumers, one, data("T"), "c1")
    assert is_changed
    is_changed = join(consumers, one, data("T"), "c1")
    assert not is_changed
    assert one.told == ["G"]
    is_changed = join(consumers, two, data("T"), "c2")
    assert is_changed
    assert consumers.client_ids("G") == ["c1", "c2"]
    is_changed = join(consumers, two, data("T", "U"), "c2")
    assert is_changed
    is_changed = join(consumers, two, data("U"), "c2")
    assert is_changed
    assert consumers.subscription("G", "T") is None
    assert consumers.subscription("G", "U").topic == "U"
    assert (one.told, two.told) == (["G"], [])
    end_round(consumers)
    assert (one.told, two.told) == (["G"] * 2, ["G"])
    consumers.unregister("G", "c2", two)
    end_round(consumers)
    assert (one.told, two.told) == (["G"] * 3, ["G"])
    end_round(consumers)
    consumers.on_close(one)
    assert consumers.group("G") is None
    assert consumers.client_ids("G") == []


def test_after_a_quiet_round_a_change_is_announced_at_once(consumers):
    one, two = Peer(), Peer()
    join(consumers, one, data("T"), "c1")
    end_round(consumers)
    join(consumers, two, data("T"), "c2")
    assert (one.told, two.told) == (["G"] * 2, ["G"])


def test_a_thousand_members_that_join_are_notified_a_few_times(consumers):
    """Each was notified of each other: half a million requests."""
    peers = [Peer() for _ in range(1_000)]
    for number, peer in enumerate(peers):
        join(consumers, peer, data("T"), f"c{number}")
        if number % 400 == 399:
            end_round(consumers)
    end_round(consumers)
    end_round(consumers)
    assert consumers.notices.sent <= 5_000
    assert all(peer.told for peer in peers)
    for peer in peers[1:]:
        consumers.on_close(peer)
    end_round(consumers)
    assert consumers.notices.sent <= 10_000


async def test_rounds_give_way_to_others(consumers, autojump_clock):
    turns = 0

    async def next_turn():
        nonlocal turns
        turns += 1

    for number in range(1_001):
        join(consumers, Peer(), data("T"), f"c{number}")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumers.notices.run, next_turn)
        await trio.sleep(client_notices.ROUND_S + 0.1)
        nursery.cancel_scope.cancel()
    assert consumers.notices.sent == 1 + 1_001
    assert turns == 1_001 // client_notices.NOTICES_PER_TURN


def test_a_change_of_a_large_group_is_announced_at_the_end_of_the_round(consumers):
    peers = [Peer() for _ in range(client_notices.NOTICES_PER_TURN + 2)]
    for number, peer in enumerate(peers):
        join(consumers, peer, data("T"), f"c{number}")
    for _ in range(2):
        end_round(consumers)
    before = consumers.notices.sent
    consumers.unregister("G", "c0", peers[0])
    assert consumers.notices.sent == before
    end_round(consumers)
    assert consumers.notices.sent == before + len(peers) - 1


def test_an_older_subscription_does_not_replace_a_newer(consumers):
    peer = Peer()
    join(consumers, peer, data("T", version=5))
    join(consumers, peer, data("T", version=4))
    assert consumers.subscription("G", "T").sub_version == 5
    join(consumers, peer, data("T", version=6))
    assert consumers.subscription("G", "T").sub_version == 6


def end_round(consumers):
    async def next_turn():
        return

    trio.run(consumers.notices.end_round, next_turn)


def test_nobody_is_told_where_that_is_not_wanted(groups, consumers):
    peer = Peer()
    join(consumers, peer, data("T", model="BROADCASTING"))
    groups.update(
        SubscriptionGroupConfig(
            group_name="H", notify_consumer_ids_changed_enable=False
        )
    )
    join(consumers, peer, data("T", group="H"))
    silent = ConsumerTable(groups, notifies=False, on_gone=print)
    join(silent, peer, data("T"))
    assert peer.told == []


def test_one_client_may_come_back_on_another_connection(consumers):
    old, new = Peer(), Peer()
    join(consumers, old, data("T"), "c")
    join(consumers, new, data("T"), "c")
    assert consumers.client_ids("G") == ["c"]
    consumers.on_close(old)
    assert consumers.client_ids("G") == ["c"]
    assert consumers.refresh("G", "c", new, 5)
    assert not consumers.refresh("G", "other", new, 5)
    assert not consumers.refresh("G", "c", old, 5)


def test_producers_come_and_go():
    table, one, two = ProducerTable(), Peer(), Peer()
    for peer, name in ((one, "c1"), (two, "c2")):
        table.register("P", name, peer, "GO", 400, 1)
    assert [member.client_id for member in table.members("P").values()] == ["c1", "c2"]
    table.on_close(one)
    table.unregister("P", "c2", two)
    table.unregister("P", "c2", two)
    assert table.members("P") == {}
    assert list(table.all()) == []


def test_producers_are_bounded(monkeypatch):
    monkeypatch.setattr(clients, "MAX_MEMBERS", 4)
    table, peer = ProducerTable(), Peer()
    for group in ("P1", "P2", "P1"):
        table.register(group, "c", peer, "JAVA", 1, 1)
    with pytest.raises(RequestRejected, match="2 of 4 members of producer groups"):
        table.register("P3", "c", peer, "JAVA", 1, 1)
    assert {group for group, _, _ in table.all()} == {"P1", "P2"}
    table.unregister("P1", "c", peer)
    table.register("P3", "c", peer, "JAVA", 1, 1)
    table.on_close(peer)
    assert table.connection("c") is None
    assert list(table.all()) == []


def test_one_address_leaves_places_to_others(monkeypatch):
    monkeypatch.setattr(clients, "MAX_MEMBERS", 100)
    table = ProducerTable()
    for number in range(50):
        table.register(f"P{number}", "c", Peer(), "JAVA", 1, 1)
    with pytest.raises(RequestRejected, match=r"10\.0\.0\.1 has 50 .*spread clients"):
        table.register("P50", "c", Peer(), "JAVA", 1, 1)
    table.register("P50", "c2", Peer("10.0.0.2"), "JAVA", 1, 1)
    table.register("P0", "c2", Peer("10.0.0.2"), "JAVA", 1, 1)


def test_one_connection_has_few_groups(monkeypatch, groups):
    """One connection took all 200,000 places with 200 heartbeats."""
    monkeypatch.setattr(clients, "MAX_GROUPS", 2)
    producers, peer = ProducerTable(), Peer()
    consumers = ConsumerTable(groups, notifies=True, on_gone=print)
    for name in ("G1", "G2"):
        producers.register(name, "c", peer, "JAVA", 1, 1)
        join(consumers, peer, data("T", group=name))
    with pytest.raises(RequestRejected, match="at most 2 groups"):
        producers.register("G3", "c", peer, "JAVA", 1, 1)
    with pytest.raises(RequestRejected, match="at most 2 groups"):
        join(consumers, peer, data("T", group="G3"))
    producers.register("G3", "c", Peer(), "JAVA", 1, 1)
    join(consumers, Peer(), data("T", group="G3"))


def test_a_connection_serves_few_client_ids():
    table, peer = ProducerTable(), Peer()
    for number in range(clients.MAX_CLIENT_IDS):
        table.register("P", f"c{number}", peer, "JAVA", 1, 1)
    with pytest.raises(RequestRejected, match="at most 64 client ids"):
        table.register("P", "one more", peer, "JAVA", 1, 1)
    table.register("P", "c7", peer, "JAVA", 1, 1)
    other = Peer()
    table.register("P", "c7", other, "JAVA", 1, 1)
    table.on_close(peer)
    assert table.connection("c7") is other
    assert table.connection("c8") is None


def test_consumers_and_what_they_want_are_bounded(groups, monkeypatch):
    monkeypatch.setattr(clients, "MAX_MEMBERS", 4)
    monkeypatch.setattr(clients, "MAX_SUBSCRIPTION_SIZE", 400)
    consumers = ConsumerTable(groups, notifies=True, on_gone=print)
    peer = Peer()
    for _ in range(5):
        join(consumers, peer, data("T", group="G1"))
        join(consumers, peer, data("T", group="G2"))
    with pytest.raises(RequestRejected, match="2 of 4 members of consumer groups"):
        join(consumers, peer, data("T", group="G3"))
    with pytest.raises(RequestRejected, match="of 400 characters of subscriptions"):
        join(consumers, peer, data("T", "U" * 100, group="G1"))
    assert consumers.group("G1").subscriptions.keys() == {"T"}
    consumers.on_close(peer)
    join(consumers, Peer(), data("T", "U" * 60, group="G3"))


def test_a_client_that_renames_itself_leaves_nothing_behind(consumers):
    peer = Peer()
    for number in range(100):
        join(consumers, peer, data("T"), f"c{number}")
    assert consumers.client_ids("G") == ["c99"]
    assert consumers.mismatches.statistics().members == 1
    consumers.on_close(peer)
    assert consumers.mismatches.statistics().members == 0


async def test_silent_clients_are_closed_and_their_groups_hear_it(
    consumers, autojump_clock
):
    clock, producers = ManualClock(), ProducerTable()
    silent, lively, producer = Peer(), Peer(), Peer()
    join(consumers, silent, data("T"), "c1", clock.ms)
    join(consumers, lively, data("T"), "c2", clock.ms + 100_000)
    producers.register("P", "c3", producer, "JAVA", 1, clock.ms)
    clock.ms += 120_001
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            housekeeping.evict_idle_clients,
            producers,
            consumers,
            clock,
            ClockSteps(clock),
            120_000,
            trio.lowlevel.checkpoint,
        )
        await trio.sleep(housekeeping.SCAN_INTERVAL_S + 1)
        nursery.cancel_scope.cancel()
    assert "heartbeat" in silent.closed_for
    assert "heartbeat" in producer.closed_for
    assert lively.closed_for is None
    assert consumers.client_ids("G") == ["c2"]
    assert list(producers.all()) == []
    await consumers.notices.end_round(trio.lowlevel.checkpoint)
    assert lively.told == ["G"]


async def test_silent_clients_of_one_group_are_closed_in_turns(
    consumers, autojump_clock, monkeypatch
):
    """A machine with thousands of clients stopped, and all others waited."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    clock, closed = ManualClock(), []
    peers = [Peer() for _ in range(50)]
    for number, peer in enumerate(peers):
        join(consumers, peer, data("T"), f"c{number}", clock.ms)
    clock.ms += 120_001

    async def next_turn():
        closed.append(sum(peer.closed_for is not None for peer in peers))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            housekeeping.evict_idle_clients,
            ProducerTable(),
            consumers,
            clock,
            ClockSteps(clock),
            120_000,
            next_turn,
        )
        await trio.sleep(housekeeping.SCAN_INTERVAL_S + 1)
        nursery.cancel_scope.cancel()
    assert closed[:50] == [*range(1, 51)]
