"""A leader's changes: confirmed by the engine, or not made as far as it says."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.controller import groups, leadership
from rmq.controller.election import Alive, Live
from rmq.controller.engine import Term
from rmq.controller.leadership import Lead
from rmq.core.errors import EngineAway, RequestRejected
from rmq.protocol.headers import controller as headers

from .engines import MemoryEngine, Shared


def leader(shared, engine=None):
    one = Lead(engine or MemoryEngine(shared), lambda: None)
    one.set_term(shared.begin_term())
    return one


def applying(broker_id):
    request = headers.ApplyBrokerIdRequestHeader(
        cluster_name="C",
        broker_name="b",
        applied_broker_id=broker_id,
        register_check_code=f"h:{broker_id};5",
    )
    return lambda group: groups.apply_broker_id(group, request)


def electing(asker, *living):
    request = headers.ElectMasterRequestHeader(broker_name="b", broker_id=asker)
    lives = Alive({each: Live(0, 0, 0) for each in living})
    return lambda group: groups.elect_master(group, request, lives, is_unclean=False)


def refused(error):
    return error.value.code == 2007


async def test_a_change_is_in_the_engine_before_its_answer():
    shared = Shared()
    one = leader(shared)
    outcome = await one.change_group("b", applying(1))
    assert shared.groups["b"].group == outcome.group == one.known_group("b")


async def test_who_does_not_lead_changes_nothing():
    one = Lead(MemoryEngine(Shared()), lambda: None)
    with pytest.raises(RequestRejected) as error:
        await one.change_group("b", applying(1))
    assert refused(error)
    with pytest.raises(RequestRejected):
        await one.group("b")


async def test_a_deposed_leader_changes_nothing():
    shared = Shared()
    old = leader(shared)
    await old.change_group("b", applying(1))
    new = leader(shared)
    assert old.is_leading  # it believes so
    with pytest.raises(RequestRejected) as error:
        await old.change_group("b", electing(1))
    assert refused(error)
    assert shared.groups["b"].group.master_id is None
    assert (await new.change_group("b", electing(1))).group.master_id == 1


async def test_a_term_ends_by_itself(autojump_clock):
    one = Lead(MemoryEngine(Shared()), lambda: None)
    one.set_term(Term(1, trio.current_time() + 4))
    await trio.sleep(3.9)
    assert one.is_leading
    await trio.sleep(0.2)
    assert not one.is_leading


async def test_a_write_whose_answer_is_lost_is_seen_by_the_next_request():
    shared = Shared()
    engine = MemoryEngine(shared)
    one = leader(shared, engine)
    await one.change_group("b", applying(1))
    engine.loses = ["after"]
    with pytest.raises(EngineAway):
        await one.change_group("b", electing(1))
    outcome = await one.change_group("b", electing(1, 1))
    assert outcome.code == 2011
    assert outcome.group.master_epoch == 1


async def test_an_engine_that_is_away_leaves_everything_as_it_was():
    shared = Shared()
    engine = MemoryEngine(shared)
    one = leader(shared, engine)
    engine.loses = ["before"]
    with pytest.raises(EngineAway):
        await one.change_group("b", applying(1))
    assert shared.groups == {}
    assert await one.group("b") is None


async def test_the_last_write_of_another_leader_is_read_again():
    shared = Shared()
    one = leader(shared)
    await one.change_group("b", applying(1))
    stored = shared.groups["b"]
    shared.groups["b"] = stored._replace(revision=99)
    assert (await one.change_group("b", applying(2))).group.members.keys() == {1, 2}


async def test_so_many_groups(monkeypatch):
    monkeypatch.setattr(leadership, "MAX_GROUPS", 1)
    one = leader(Shared())
    await one.change_group("b", applying(1))
    with pytest.raises(RequestRejected, match="the limit"):
        await one.change_group("c", applying(1))
    assert (await one.change_group("b", applying(2))).code == 0


STEP = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from(["lead", "elect", "elect", "apply"]),
    st.integers(1, 3),
    st.sets(st.integers(1, 3)),
    st.sampled_from(["", "", "", "before", "after"]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_two_controllers_that_both_believe_never_name_two_masters(steps):
    async def main():
        shared = Shared()
        engines = MemoryEngine(shared), MemoryEngine(shared)
        both = [Lead(engine, lambda: None) for engine in engines]
        masters = {}
        for who, what, broker_id, living, lost in steps:
            one = both[who]
            if what == "lead":
                one.set_term(shared.begin_term())
                continue
            engines[who].loses = [lost] if lost else []
            act = applying(broker_id)
            if what == "elect":
                act = electing(broker_id, *living)
            try:
                outcome = await one.change_group("b", act)
            except (EngineAway, RequestRejected):
                continue
            if outcome.code in (0, 2011) and outcome.group.master_id is not None:
                told = outcome.group
                known = masters.setdefault(told.master_epoch, told.master_id)
                assert known == told.master_id

    trio.run(main)
