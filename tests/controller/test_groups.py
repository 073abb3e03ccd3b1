"""The state of a group: Java's codes and remarks; what no order of requests breaks."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.controller import groups
from rmq.controller.election import Alive, KnownSet, Live
from rmq.controller.engine import decode_group, encode_group
from rmq.controller.groups import MAX_MEMBERS, Group, Member
from rmq.protocol.bodies.controller import ElectMasterResponseBody, SyncStateSet
from rmq.protocol.bodies.route import BrokerMemberGroup
from rmq.protocol.codes import ResponseCode as Code
from rmq.protocol.headers import controller as headers

NOBODY = Alive({})


def alive(*ids, epoch=1, max_offset=100):
    return Alive({each: Live(epoch, max_offset, 0) for each in ids})


def group(*ids, master=1, epoch=1, sync=(1,), set_epoch=1):
    members = {each: Member(f"127.0.0.1:{each}", f"c{each}") for each in ids}
    return Group(
        cluster="C",
        name="b",
        members=members,
        next_id=max(ids) + 1,
        master_id=master,
        master_epoch=epoch,
        sync_set=sync,
        set_epoch=set_epoch,
    )


def alter(state, ids, *, who=1, epoch=1, set_epoch=1, lives=None):
    request = headers.AlterSyncStateSetRequestHeader(
        broker_name="b", master_broker_id=who, master_epoch=epoch
    )
    wanted = SyncStateSet(sync_state_set=ids, sync_state_set_epoch=set_epoch)
    return groups.alter_sync_state_set(state, request, wanted, lives or alive(1, 2, 3))


def elect(state, asker, lives, *, wanted=False, is_unclean=False):
    request = headers.ElectMasterRequestHeader(
        cluster_name="C", broker_name="b", broker_id=asker, designate_elect=wanted
    )
    return groups.elect_master(state, request, lives, is_unclean=is_unclean)


def register(state, broker_id, lives=NOBODY, *, address=None, cluster="C"):
    request = headers.RegisterBrokerToControllerRequestHeader(
        cluster_name=cluster,
        broker_name="b",
        broker_id=broker_id,
        broker_address=address or f"127.0.0.1:{broker_id}",
    )
    return groups.register(state, request, lives)


def apply(state, broker_id, code="127.0.0.1:1;5", cluster="C"):
    request = headers.ApplyBrokerIdRequestHeader(
        cluster_name=cluster,
        broker_name="b",
        applied_broker_id=broker_id,
        register_check_code=code,
    )
    return groups.apply_broker_id(state, request)


def clean(state, ids=None, lives=NOBODY, *, living=False):
    request = headers.CleanControllerBrokerDataRequestHeader(
        cluster_name="C",
        broker_name="b",
        broker_controller_ids_to_clean=ids,
        is_clean_living_broker=living,
    )
    return groups.clean(state, request, lives)


# -- 1001


@pytest.mark.parametrize(
    ("ids", "more", "code", "remark"),
    [
        ([1], {}, 2013, "The newSyncStateSet is equal with oldSyncStateSet, no needed"),
        ([1, 2], {"who": 2}, 2002, "the current leader is:{1}, not {2}"),
        ([1, 2], {"who": None}, 2002, "the current leader is:{1}, not {null}"),
        ([1, 2], {"epoch": 2}, 2000, "the current master epoch is:{1}, not {2}"),
        ([1, 2], {"set_epoch": 0}, 2001, "current syncStateSet epoch is:{1}, not {0}"),
        ([1, 9], {}, 2003, "the replicas {9} don't exist"),
        ([1, 2], {"lives": alive(1)}, 2006, "the replicas {2} don't alive"),
        ([2], {}, 2013, "the newSyncStateSet don't contains origin leader {1}"),
    ],
)
def test_a_set_that_is_refused(ids, more, code, remark):
    state = group(1, 2, 3)
    outcome = alter(state, ids, **more)
    assert outcome.code == code
    assert remark in outcome.remark
    assert outcome.group is state


def test_the_set_of_an_unknown_group():
    outcome = alter(None, [1])
    assert (outcome.code, outcome.remark) == (2013, "Broker metadata is not existed")


def test_a_set_grows():
    outcome = alter(group(1, 2), [2, 1])
    assert outcome.code == 0
    assert outcome.header.new_sync_state_set_epoch == 2
    assert (outcome.group.sync_set, outcome.group.set_epoch) == ((1, 2), 2)
    body = SyncStateSet.decode(outcome.body)
    assert (body.sync_state_set, body.sync_state_set_epoch) == ([1, 2], 2)


def test_the_master_knows_more_of_its_set_than_an_old_copy():
    outcome = alter(group(1, 2), [1, 2], set_epoch=7)
    assert outcome.group.set_epoch == 8


def test_a_set_of_a_group_without_a_master():
    outcome = alter(group(1, 2, master=None), [1, 2])
    assert (outcome.code, "is:{null}, not {1}" in outcome.remark) == (2002, True)


# -- 1002


def test_the_first_broker_that_asks_is_master():
    state = group(1, 2, master=None, epoch=0, sync=(), set_epoch=0)
    outcome = elect(state, 2, NOBODY)
    assert outcome.group.master_id == 2
    assert (outcome.group.master_epoch, outcome.group.sync_set) == (1, (2,))
    assert outcome.header.master_address == "127.0.0.1:2"


def test_the_first_master_is_no_stranger():
    state = group(1, 2, master=None, epoch=0, sync=(), set_epoch=0)
    assert elect(state, 9, alive(1, 2)).code == Code.CONTROLLER_ELECT_MASTER_FAILED


def test_a_master_that_lives_stays():
    state = group(1, 2, sync=(1, 2))
    outcome = elect(state, 2, alive(1, 2))
    assert outcome.code == Code.CONTROLLER_MASTER_STILL_EXIST
    assert outcome.remark == (
        "The old master 1 is still alive, not need to elect new master for broker b"
    )
    assert outcome.header.master_broker_id == 1
    assert ElectMasterResponseBody.decode(outcome.body).sync_state_set == [1, 2]
    assert outcome.group is state


def test_a_dead_master_has_a_successor():
    outcome = elect(group(1, 2, 3, sync=(1, 2), set_epoch=4), -1, alive(2, 3))
    new = outcome.group
    assert (new.master_id, new.master_epoch) == (2, 2)
    assert (new.sync_set, new.set_epoch) == ((2,), 5)
    body = ElectMasterResponseBody.decode(outcome.body)
    assert body.broker_member_group.broker_addrs[3] == "127.0.0.1:3"
    assert body.sync_state_set == [2]
    shown = BrokerMemberGroup.decode(outcome.body)  # as mqadmin reads it
    assert (shown.broker_name, len(shown.broker_addrs)) == ("b", 3)


def test_nobody_of_the_set_lives():
    state = group(1, 2, 3, sync=(1, 2))
    asked = elect(state, 3, alive(3))
    assert (asked.code, asked.group) == (Code.CONTROLLER_ELECT_MASTER_FAILED, state)
    found = elect(state, -1, alive(3))
    assert found.code == Code.CONTROLLER_MASTER_NOT_AVAILABLE
    assert (found.group.master_id, found.group.master_epoch) == (None, 2)
    assert found.group.sync_set == (1, 2)
    assert elect(state, -1, alive(3), is_unclean=True).group.master_id == 3


def test_a_person_names_the_master():
    state = group(1, 2, 3, sync=(1, 2))
    assert elect(state, 2, alive(1, 2, 3), wanted=True).group.master_id == 2


@pytest.mark.parametrize("lagging_or_dead_or_unknown", [3, 2, 9])
def test_a_person_names_one_that_cannot_be_master(lagging_or_dead_or_unknown):
    state = group(1, 2, 3, sync=(1, 2))
    lives = alive(1, 3)
    outcome = elect(state, lagging_or_dead_or_unknown, lives, wanted=True)
    assert (outcome.code, outcome.group) == (2012, state)
    assert outcome.remark == "Failed to elect a new master"


def test_an_election_in_an_unknown_group():
    outcome = elect(None, 1, NOBODY)
    assert (outcome.code, outcome.remark) == (2010, "Broker hasn't been registered")


def test_a_state_that_was_restored_from_an_old_copy_elects_nobody_by_itself():
    state = group(1, 2, sync=(1, 2), epoch=3)
    lives = alive(2, epoch=5)
    for asker in (2, -1):
        outcome = elect(state, asker, lives)
        assert (outcome.code, outcome.group) == (2012, state)
        assert "know master epoch 5, the controller knows 3" in outcome.remark
    assert not groups.needs_election(state, lives)
    named = elect(state, 2, lives, wanted=True)
    assert (named.group.master_id, named.group.master_epoch) == (2, 6)


def knowing(known, *ids, epoch=1):
    """Live members that report a newest set, by id."""
    return Alive({each: Live(epoch, 100, 0, 0, known.get(each)) for each in ids})


NEWER = KnownSet(1, 5, 1, (1,))


def test_a_newer_set_of_a_member_makes_the_state_doubtful():
    """The controller's state is a copy from before broker 2 left the set."""
    state = group(1, 2, sync=(1, 2), set_epoch=4)
    lives = knowing({2: NEWER}, 2)
    for asker in (2, -1):
        outcome = elect(state, asker, lives)
        assert (outcome.code, outcome.group) == (2012, state)
        assert "waits for brokers 1." in outcome.remark
    assert not groups.needs_election(state, lives)
    three = group(1, 2, 3, sync=(1, 2, 3), set_epoch=4)
    lives = knowing({2: KnownSet(1, 5, 1, (1, 3))}, 1, 2)
    refused = alter(three, [1, 2], who=1, set_epoch=4, lives=lives)
    assert (refused.code, refused.group) == (2013, three)
    assert "waits for brokers 3." in refused.remark


def test_doubt_ends_when_all_of_the_newest_set_were_heard():
    state = group(1, 2, sync=(1, 2), set_epoch=4)
    lives = knowing({1: NEWER}, 1, 2)
    assert groups.needs_election(state, lives)
    outcome = elect(state, -1, lives)
    assert (outcome.group.master_id, outcome.group.sync_set) == (1, (1,))
    assert outcome.group.term == (1, 6)
    assert not outcome.group.is_doubtful(lives)


def test_a_newer_master_is_taken_from_its_members():
    newer = KnownSet(3, 9, 2, (2, 3))
    state = group(1, 2, 3, sync=(1, 2), set_epoch=4)
    waits = elect(state, 1, knowing({3: newer}, 1, 3, epoch=3))
    assert waits.code == 2012
    kept = elect(state, -1, knowing({3: newer}, 1, 2, 3, epoch=3))
    assert (kept.group.master_id, kept.group.sync_set) == (2, (2, 3))
    assert kept.group.term == (3, 10)
    gone = newer._replace(master_id=7)
    chosen = elect(state, -1, knowing({3: gone}, 1, 2, 3, epoch=3))
    assert chosen.group.master_id in (2, 3)
    assert chosen.group.master_epoch == 4


def test_a_master_of_an_older_state_does_not_change_the_set():
    """The state is from before broker 2 became the master, and both were heard."""
    state = group(1, 2, sync=(1, 2), set_epoch=4)
    lives = knowing({2: KnownSet(2, 5, 2, (2,))}, 1, 2)
    refused = alter(state, [1], who=1, set_epoch=4, lives=lives)
    assert refused.code == Code.CONTROLLER_INVALID_MASTER
    assert (refused.group.master_id, refused.group.sync_set) == (2, (2,))
    assert refused.group.term == (2, 6)


def test_two_sets_of_an_epoch_do_not_get_one_number():
    state = group(1, 2, 3, sync=(1, 2, 3), set_epoch=4)
    lives = knowing({2: KnownSet(1, 5, 1, (1, 2))}, 1, 2)
    refused = alter(state, [1, 3], who=1, set_epoch=4, lives=lives)
    assert refused.code == Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    assert refused.group.term == (1, 6)


def test_an_operator_gives_no_epoch_that_a_member_has_seen():
    """Broker 2 was elected in epoch 5, and has written nothing in it."""
    state = group(1, 2, sync=(1, 2), epoch=3, set_epoch=4)
    lives = knowing({2: KnownSet(5, 9, 2, (2,))}, 1, 2)
    chosen = elect(state, 1, lives, wanted=True)
    assert (chosen.group.master_id, chosen.group.master_epoch) == (1, 6)


def test_a_forgotten_group_waits_for_its_last_set():
    """`groups.json` was removed: broker 1 comes first, and lags."""
    state = group(1, master=None, epoch=0, sync=(), set_epoch=0)
    known = KnownSet(4, 7, 2, (2,))
    outcome = elect(state, 1, knowing({1: known}, 1, epoch=4))
    assert (outcome.code, outcome.group) == (2012, state)
    both = group(1, 2, master=None, epoch=0, sync=(), set_epoch=0)
    chosen = elect(both, 1, knowing({1: known}, 1, 2, epoch=4))
    assert (chosen.group.master_id, chosen.group.sync_set) == (2, (2,))


def test_a_doubtful_engine_waits_for_all_of_the_set():
    state = group(1, 2, sync=(1, 2))
    one = alive(2)._replace(is_doubtful=True)
    assert not groups.needs_election(state, one)
    assert elect(state, 2, one).code == 2012
    both = alive(1, 2)._replace(is_doubtful=True)
    kept = elect(state, -1, both)
    assert (kept.code, kept.group.master_id, kept.group.term) == (2011, 1, (1, 2))
    named = elect(state, 2, one, wanted=True)
    assert named.group.master_id == 2


def test_a_log_that_ends_before_what_was_confirmed_waits():
    state = group(1, 2, sync=(1, 2))

    def recent(epoch, max_offset):
        return Live(epoch, max_offset, 0, is_recent=True, required=(1, 100))

    assert elect(state, 1, Alive({1: recent(1, 80)})).code == 2012
    late = Live(1, 80, 0, required=(1, 100))
    assert elect(state, 1, Alive({1: late})).group.master_id == 1
    empty = Alive({1: recent(0, 0)})
    assert elect(state, 1, empty).code == 2012, "its disk has lost the epoch, too"
    both = {1: recent(1, 80), 2: recent(1, 100)}
    chosen = elect(state, 1, Alive(both, confirmed=(1, 100)))
    assert chosen.group.master_id == 2
    assert chosen.group.confirmed == (1, 100)
    lost = {each: recent(1, 80) for each in (1, 2)}
    assert elect(state, 1, Alive(lost)).group.master_id == 1


@pytest.mark.parametrize(
    "text", ["", "1", "1/2/3", "1/2/3:x", "-1/2/3:1", "1/2/3:1,", "9" * 20 + "/1/1:1"]
)
def test_texts_that_are_no_set(text):
    assert KnownSet.decode(text) is None


def test_a_set_is_read_again():
    for known in (NEWER, KnownSet(0, 0), KnownSet(7, 8, 9, (1, 2, 3))):
        assert KnownSet.decode(known.encode()) == known


def test_epochs_that_are_used_up():
    state = group(1, 2, sync=(1, 2), epoch=2**31 - 1)
    assert elect(state, -1, alive(2)).group is state
    assert elect(state, -1, NOBODY).group is state


def test_when_an_election_is_due():
    state = group(1, 2, sync=(1, 2))
    assert groups.needs_election(state, alive(2))
    assert not groups.needs_election(state, alive(1, 2))
    assert not groups.needs_election(state, NOBODY)
    assert not groups.needs_election(state, Alive({2: Live(1, 1, 0)}, {1}))
    assert not groups.needs_election(group(1, 2, master=None), alive(2))


# -- 1003, 1012, 1013


def test_ids_are_given_in_order():
    request = headers.GetNextBrokerIdRequestHeader(cluster_name="C", broker_name="b")
    assert groups.next_broker_id(None, request).header.next_broker_id == 1
    state = apply(None, 1).group
    assert groups.next_broker_id(state, request).header.next_broker_id == 2
    assert apply(state, 1).group == state  # it asks again
    assert apply(state, 2, "127.0.0.1:2;6").group.next_id == 3
    later = apply(state, 7, "127.0.0.1:7;6").group
    assert groups.next_broker_id(later, request).header.next_broker_id == 8


@pytest.mark.parametrize(
    ("known", "broker_id", "code", "remark"),
    [
        (False, 2, 2014, "hasn't been registered in controller, but broker try to"),
        (True, 1, 2014, "Fail to apply brokerId: 1 in broker-set: b"),
        (True, 0, 2014, "appliedBrokerId is empty"),
        (True, None, 2014, "appliedBrokerId is empty"),
        (True, 2**31, 2014, "appliedBrokerId is empty"),
    ],
)
def test_ids_that_are_refused(known, broker_id, code, remark):
    outcome = apply(group(1) if known else None, broker_id, "127.0.0.1:9;6")
    assert outcome.code == code
    assert remark in outcome.remark


def test_a_group_is_of_one_cluster():
    assert apply(group(1), 2, cluster="D").code == Code.CONTROLLER_INVALID_REQUEST
    assert register(group(1), 1, cluster="D").code == Code.CONTROLLER_INVALID_REQUEST


def test_names_have_limits():
    assert apply(None, 1, cluster="C" * 256).code == 2005
    assert apply(None, 1, "").code == 2005
    assert apply(None, 1, "x" * 256 + ";5").code == 2005
    assert register(group(1), 1, address="x" * 256).code == 2005


def test_a_group_has_so_many_members():
    state = group(*range(1, MAX_MEMBERS + 1))
    outcome = apply(state, MAX_MEMBERS + 1, "127.0.0.1:9;6")
    assert (outcome.code, "remove dead brokers" in outcome.remark) == (2014, True)


def test_a_broker_starts():
    state = group(1, 2, sync=(1, 2), set_epoch=3)
    outcome = register(state, 2, alive(1))
    assert (outcome.header.master_broker_id, outcome.header.master_epoch) == (1, 1)
    assert SyncStateSet.decode(outcome.body).sync_state_set_epoch == 3
    assert register(state, 2, alive(2)).header.master_broker_id is None


def test_a_broker_starts_elsewhere():
    outcome = register(group(1, 2), 2, alive(1), address="127.0.0.2:2")
    assert outcome.group.address_of(2) == "127.0.0.2:2"
    assert outcome.group.members[2].check_code == "c2"


def test_a_copied_identity_does_not_take_the_place_of_one_that_lives():
    state = group(1, 2)
    outcome = register(state, 2, alive(2), address="127.0.0.2:2")
    assert (outcome.code, outcome.group) == (2005, state)
    assert "has a copy of its brokerIdentity file" in outcome.remark


def test_a_broker_that_has_no_id():
    assert register(None, 1).code == Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    outcome = register(group(1), 2)
    assert outcome.remark == "BrokerId: 2 hasn't been registered in broker-set: b"
    assert "BrokerId: null" in register(group(1), None).remark


# -- 1004, 1006, 1011


def test_what_brokers_ask():
    outcome = groups.replica_info(group(1, 2))
    assert outcome.header.master_address == "127.0.0.1:1"
    assert groups.replica_info(group(1, master=None)).header.encode() == {
        "masterEpoch": "1"
    }
    assert groups.replica_info(None).code == Code.CONTROLLER_BROKER_METADATA_NOT_EXIST


def test_what_tools_show():
    info = groups.replicas_of(group(1, 2, sync=(1,)), alive(2))
    assert [(each.broker_id, each.alive) for each in info.in_sync_replicas] == [
        (1, False)
    ]
    assert [(each.broker_id, each.alive) for each in info.not_in_sync_replicas] == [
        (2, True)
    ]


def test_the_dead_are_forgotten():
    state = group(1, 2, 3, sync=(1, 2))
    assert clean(state, "3").group.members.keys() == {1, 2}
    left = clean(state, "2").group
    assert (left.sync_set, left.set_epoch) == ((1,), 2)
    assert clean(state, "1;2").group is None  # nobody is left who has all messages


def test_a_master_that_is_forgotten_is_master_no_more():
    left = clean(group(1, 2, sync=(1, 2)), "1").group
    assert (left.master_id, left.master_epoch, left.sync_set) == (None, 2, (2,))


@pytest.mark.parametrize(
    ("known", "ids", "remark"),
    [
        (True, None, "Broker b is still alive, clean up failure"),
        (True, "2", "Broker [b,  2] is still alive, clean up failure"),
        (True, "2;x", "Please set the option <brokerControllerIdsToClean>"),
        (False, None, "Broker b is not existed,clean broker data failure."),
    ],
)
def test_what_is_not_forgotten(known, ids, remark):
    outcome = clean(group(1, 2) if known else None, ids, alive(2))
    assert outcome.code == Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert outcome.remark.startswith(remark)


def test_the_living_are_forgotten_if_a_person_insists():
    assert clean(group(1, 2), None, alive(1), living=True).group is None
    assert clean(group(1, 2), "2", alive(2), living=True).group.members.keys() == {1}


def test_a_group_without_a_master_is_forgotten_as_a_whole():
    assert clean(group(1, 2, master=None)).group is None


# -- any order of requests

IDS = st.integers(1, 4)
EPOCHS = st.integers(0, 6)
LIVE = st.builds(
    Live, EPOCHS, st.integers(0, 9), st.just(0), st.integers(0, 9), st.none()
)
"""Without sets that a member knows: these have to be of the controller's past."""

LIVES = st.builds(
    Alive, st.dictionaries(IDS, LIVE), st.sets(IDS, max_size=2), st.booleans()
)
STEPS = st.one_of(
    st.builds(
        lambda ids, who, epoch, set_epoch, lives: lambda s: alter(
            s, ids, who=who, epoch=epoch, set_epoch=set_epoch, lives=lives
        ),
        st.lists(IDS, max_size=4), IDS, EPOCHS, st.integers(0, 9), LIVES,
    ),
    st.builds(
        lambda asker, lives, wanted, unclean: lambda s: elect(
            s, asker, lives, wanted=wanted, is_unclean=unclean
        ),
        st.sampled_from([-1, 1, 2, 3, 9]), LIVES, st.booleans(), st.booleans(),
    ),
    st.builds(
        lambda broker_id, lives, address: lambda s: register(
            s, broker_id, lives, address=address
        ),
        IDS, LIVES, st.sampled_from(["a:1", "b:2"]),
    ),
    st.builds(
        lambda broker_id, code: lambda s: apply(s, broker_id, code),
        IDS, st.sampled_from(["a:1;1", "b:2;2", "c:3;3"]),
    ),
    st.builds(
        lambda ids, lives, living: lambda s: clean(
            s, ";".join(map(str, ids)), lives, living=living
        ),
        st.lists(IDS, min_size=1, max_size=2), LIVES, st.booleans(),
    ),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_no_order_of_requests_breaks_a_group(steps):
    state = None
    masters: dict[int, int] = {}
    for step in steps:
        before, outcome = state, step(state)
        state = outcome.group
        if outcome.code not in (Code.SUCCESS, Code.CONTROLLER_MASTER_NOT_AVAILABLE):
            is_sure_now = before and state == msgspec.structs.replace(
                before, set_epoch=before.set_epoch + 1
            )
            assert state == before or is_sure_now
        if state is None:
            masters.clear()  # a person has forgotten it, or it was never there
            continue
        assert state.master_id is None or state.master_id in state.sync_set
        assert set(state.sync_set) <= state.members.keys()
        assert max(state.members) < state.next_id
        if state.master_id is not None:
            known = masters.setdefault(state.master_epoch, state.master_id)
            assert known == state.master_id, "two masters in one epoch"
        if before is not None:
            assert state.master_epoch >= before.master_epoch
            assert state.set_epoch >= before.set_epoch
            if state.sync_set != before.sync_set:
                assert state.set_epoch > before.set_epoch
        assert decode_group("b", encode_group(state)) == state


def test_a_stored_group_that_is_none():
    with pytest.raises(Exception, match="the stored group b cannot be read"):
        decode_group("b", msgspec.json.encode({"cluster": 1}))
