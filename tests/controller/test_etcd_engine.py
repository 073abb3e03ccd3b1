"""Controllers on etcd's gateway: terms, fenced writes, endpoints that fail."""

from contextlib import asynccontextmanager

import pytest
import trio

pytest.importorskip("httpx")

from rmq.controller.config import ControllerConfig, EngineKind
from rmq.controller.etcd_engine import ENDPOINT_S, NEXT_S, EtcdEngine
from rmq.controller.groups import Group, Member
from rmq.core.errors import EngineAway, TermLost

from .gateway import Gateway, encoded

GROUP = Group(cluster="C", name="b", members={1: Member("h:1", "c")}, next_id=2)
ENDPOINTS = "http://e1:2379,http://e2:2379,http://e3:2379"


@pytest.fixture
def gateway():
    return Gateway()


def engine(gateway, **keys):
    config = ControllerConfig(
        controller_engine=EngineKind.etcd, etcd_endpoints=ENDPOINTS, **keys
    )
    return EtcdEngine(config, gateway)


class Candidate:
    """A controller that runs for the lead."""

    def __init__(self, gateway, address):
        self.engine, self.address = engine(gateway), address
        self.term = None
        self.terms = []
        self.scope = trio.CancelScope()

    def take(self, term):
        self.term = term
        self.terms.append(term and term.number)

    @property
    def leads(self):
        return self.term is not None and trio.current_time() < self.term.until_s

    async def run(self):
        with self.scope:
            await self.engine.campaign(self.address, self.take)


@asynccontextmanager
async def candidates(gateway, count=2):
    async with trio.open_nursery() as nursery:
        found = []
        for number in range(count):
            found.append(Candidate(gateway, f"h:{number}"))
            nursery.start_soon(found[-1].run)
            await trio.sleep(1.5)
        yield found
        nursery.cancel_scope.cancel()


async def test_one_leads_and_the_next_one_follows(gateway, autojump_clock):
    async with candidates(gateway) as (first, second):
        assert (first.leads, second.leads) == (True, False)
        view = await second.engine.load()
        assert (view.leader, view.controllers) == ("h:0", ("h:0", "h:1"))
        first.scope.cancel()
        await trio.sleep(2)
        assert (first.leads, second.leads) == (False, True)
        view = await second.engine.load()
        assert (view.leader, view.controllers) == ("h:1", ("h:1",))


async def test_only_who_leads_writes_and_only_what_it_read(gateway, autojump_clock):
    async with candidates(gateway) as (first, second):
        term = first.term
        revision = await first.engine.swap("b", GROUP, 0, term)
        assert (await second.engine.load()).groups["b"] == (GROUP, revision)
        outcome = await first.engine.swap("b", GROUP, 0, term)
        assert outcome is None
        gateway.expire("7")
        await trio.sleep(1.2)
        assert second.leads
        with pytest.raises(TermLost):
            await first.engine.swap("b", None, revision, term)
        assert "b" in (await second.engine.load()).groups
        outcome = await second.engine.swap("b", None, revision, second.term)
        assert outcome
        assert (await second.engine.load()).groups == {}


async def test_a_leader_that_etcd_does_not_hear_stops_before_its_lease_ends(
    gateway, autojump_clock
):
    async with candidates(gateway) as (first, _):
        gateway.mood = dict.fromkeys(("e1", "e2", "e3"), "slow")
        await trio.sleep(4.5)
        assert not first.leads


async def test_a_leader_goes_on_when_etcd_is_back_in_time(gateway, autojump_clock):
    async with candidates(gateway, 1) as (first,):
        gateway.mood = dict.fromkeys(("e1", "e2", "e3"), "away")
        await trio.sleep(2)
        gateway.mood = {}
        await trio.sleep(4)
        assert first.leads
        assert len(first.terms) == 1


async def test_a_leader_whose_key_was_removed_begins_another_term(
    gateway, autojump_clock
):
    async with candidates(gateway, 1) as (first,):
        old = first.term
        gateway.kv_delete_range({"key": encoded("/rmq/rmq-controller/leader")})
        with pytest.raises(TermLost):
            await first.engine.swap("b", GROUP, 0, old)
        assert not first.leads
        await trio.sleep(1.2)
        assert first.leads
        assert first.term.number > old.number
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        assert revision


@pytest.mark.parametrize("mood", ["away", "slow", "full"])
async def test_the_next_endpoint_answers(gateway, autojump_clock, mood):
    async with candidates(gateway, 1) as (first,):
        gateway.mood = {"e1": mood}
        gateway.asked.clear()
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        assert revision
        assert await first.engine.load()
        hosts = [host for host, path in gateway.asked if path == "kv/range"]
        assert hosts == ["e2"]  # it stays with the one that answers


async def test_a_silent_endpoint_costs_a_part_of_its_time_limit(
    gateway, autojump_clock
):
    async with candidates(gateway, 1) as (first,):
        gateway.mood = {"e1": "slow"}
        began_s = trio.current_time()
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        assert revision
        assert trio.current_time() - began_s == pytest.approx(NEXT_S)
        gateway.mood = dict.fromkeys(("e1", "e2", "e3"), "slow")
        began_s = trio.current_time()
        with pytest.raises(EngineAway, match="did not answer within 1 s"):
            await first.engine.load()
        lasted_s = trio.current_time() - began_s
        assert lasted_s == pytest.approx(ENDPOINT_S + 2 * NEXT_S)


async def test_a_write_that_was_sent_twice_is_made_once(gateway, autojump_clock):
    async with candidates(gateway, 1) as (first,):
        gateway.mood = {"e1": "lost"}
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        assert revision is None
        assert (await first.engine.load()).groups["b"].group == GROUP


async def test_the_lead_is_taken_once_although_the_answer_is_lost(
    gateway, autojump_clock
):
    gateway.mood = {"e1": "lost"}
    async with candidates(gateway, 1) as (first,):
        await trio.sleep(5)
        assert first.leads


async def test_a_full_etcd_is_named(gateway, autojump_clock):
    async with candidates(gateway, 1) as (first,):
        gateway.mood = dict.fromkeys(("e1", "e2", "e3"), "full")
        with pytest.raises(EngineAway, match="database space exceeded"):
            await first.engine.swap("b", GROUP, 0, first.term)
        await trio.sleep(10)
        assert first.leads  # and brokers get their answers


async def test_others_see_what_changes(gateway, autojump_clock):
    seen = []

    async def watch(one):
        async for view in one.watch():
            seen.append((view.leader, sorted(view.groups)))

    async with candidates(gateway) as (first, second), trio.open_nursery() as nursery:
        nursery.start_soon(watch, second.engine)
        await trio.sleep(0.1)
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        await trio.sleep(0.1)
        await first.engine.swap("b", None, revision, first.term)
        await trio.sleep(0.1)
        assert seen == [("h:0", []), ("h:0", ["b"]), ("h:0", [])]
        gateway.mood = dict.fromkeys(("e1", "e2", "e3"), "away")
        for lease in list(gateway.leases):
            gateway.expire(lease)
        await trio.sleep(30)
        gateway.mood = {}
        await trio.sleep(5)
        assert seen[-1][0] in ("h:0", "h:1")
        assert (None, []) in seen
        nursery.cancel_scope.cancel()


async def test_a_watch_leaves_an_endpoint_that_hangs(gateway, autojump_clock):
    seen = []

    async def watch(one):
        async for view in one.watch():
            seen.append(sorted(view.groups))

    async with candidates(gateway) as (first, second), trio.open_nursery() as nursery:
        nursery.start_soon(watch, second.engine)
        await trio.sleep(5)
        gateway.mood = {"e1": "slow"}
        revision = await first.engine.swap("b", GROUP, 0, first.term)
        assert revision
        await trio.sleep(2)
        assert seen == [[], ["b"]]
        nursery.cancel_scope.cancel()


async def test_a_stored_group_of_somebody_else(gateway, autojump_clock):
    async with candidates(gateway, 1) as (first,):
        await first.engine.swap("b", GROUP, 0, first.term)
        key = next(key for key in gateway.kvs if key.endswith("group/b"))
        gateway.kvs[key]["value"] = "e30="
        with pytest.raises(EngineAway, match="the stored group b cannot be read"):
            await first.engine.load()


async def test_users_of_etcd(gateway):
    gateway.needs_user = True
    one = engine(gateway, etcd_user="root", etcd_password="secret")
    assert (await one.load()).groups == {}
    gateway.tokens.clear()  # as after some minutes
    assert (await one.load()).groups == {}
    with pytest.raises(EngineAway, match="authentication failed"):
        await engine(gateway, etcd_user="root", etcd_password="x").load()
