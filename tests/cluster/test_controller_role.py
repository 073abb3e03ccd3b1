"""The role automaton, event by event."""

import pytest

from rmq.cluster import controller_role as role
from rmq.cluster.controller_role import RoleState, Term, step
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command

MASTER = Term(3, 1, "one:1", 1, frozenset({1, 2}), 7)
SLAVE = Term(3, 2, "two:1", 1, frozenset({1, 2}), 7)
WITHOUT_MASTER = Term(3, 0, "", 1, frozenset({1, 2}), 7)


def run(state, *events):
    effects = ()
    for event in events:
        state, effects = step(state, event)
    return state, effects


def refused(code):
    return role.Refused(Command(int(code)))


def member(term):
    state, effects = run(
        RoleState(), role.Identified(0, 9), role.Registered(term, 1), role.TermEntered()
    )
    assert effects == ()
    return state


def test_a_broker_registers_and_runs_in_the_term_of_the_answer():
    state, effects = run(RoleState(), role.Identified(0, 9))
    assert effects == (role.Register(),)
    state, effects = step(state, role.Registered(SLAVE, 1))
    assert effects == (role.SwitchTerm(SLAVE),)
    assert (state.term, state.running, state.problem) == (SLAVE, Term(), "")
    state, _ = step(state, role.TermEntered())
    assert state.running == SLAVE


@pytest.mark.parametrize(
    ("is_learner", "effects"), [(False, (role.Elect(),)), (True, ())]
)
def test_only_a_learner_does_not_stand_in_a_group_without_a_master(is_learner, effects):
    state = RoleState(is_learner=is_learner)
    assert run(state, role.Identified(0, 9), role.Registered(Term(), 1))[1] == effects
    assert run(state, role.RoleFound(WITHOUT_MASTER, 1))[1] == effects


def test_a_broker_that_may_lack_messages_defers_until_another_one_is_the_master():
    state, effects = run(RoleState(may_lack=True), role.Identified(0, 9))
    assert effects == (role.AskRole(),)
    for term in (MASTER, WITHOUT_MASTER):
        assert step(state, role.RoleFound(term, 1))[1] == (role.Defer(),)
    for term in (SLAVE, MASTER._replace(members=frozenset({1}))):
        assert step(state, role.RoleFound(term, 1))[1] == (role.Register(),)
    assert step(state, role.RoleDue(8))[1] == (role.AskRole(),)
    assert step(state, role.RoleDue(9))[1] == (role.Register(),)
    unknown = role.RoleRefused(refused(ResponseCode.SYSTEM_ERROR))
    assert step(state, unknown)[1] == (role.Register(),)


@pytest.mark.parametrize("seen", [(4, 0), (3, 8)])
@pytest.mark.parametrize("term", [MASTER, SLAVE, WITHOUT_MASTER])
def test_a_broker_that_defers_reports_a_set_that_the_controller_lacks(seen, term):
    state, _ = run(RoleState(may_lack=True, seen=seen), role.Identified(0, 9))
    effects = step(state, role.RoleFound(term, 1))[1]
    assert effects == (role.ReportSet(), role.Defer())


@pytest.mark.parametrize("seen", [(4, 0), (3, 8)])
@pytest.mark.parametrize("event", [role.Registered, role.RoleFound, role.Elected])
@pytest.mark.parametrize("term", [MASTER, SLAVE])
def test_a_start_refuses_a_role_from_an_old_state(seen, event, term):
    """The controller's state is older than the set that this broker has saved."""
    state, _ = run(RoleState(seen=seen), role.Identified(0, 9))
    refusing, [effect] = step(state, event(term, 1))
    assert isinstance(effect, role.LogProblem)
    assert refusing.term == Term()
    assert step(refusing, event(term, 2)) == (refusing, ())
    newer = term._replace(epoch=seen[0], number=max(seen[1], 1))
    assert step(refusing, event(newer, 3))[1] == (role.SwitchTerm(newer),)


def test_a_running_master_ignores_an_older_set():
    state = member(MASTER)._replace(seen=(3, 8))
    assert step(state, role.RoleFound(MASTER, 5))[1] == (role.ApplySet({1, 2}, 7),)


def test_a_broker_does_not_enter_a_term_that_its_log_has_left():
    """A slave has copied epoch 5 after the answer with epoch 4."""
    state, _ = step(member(SLAVE), role.RoleFound(MASTER._replace(epoch=4), 5))
    state, _ = step(state._replace(seen=(5, 0)), role.TermEntered())
    assert (state.term, state.running) == (Term(), Term())


def test_an_older_epoch_changes_nothing():
    state = member(MASTER)
    older = SLAVE._replace(epoch=2)
    assert step(state, role.RoleFound(older, 5)) == (state, ())


def test_the_master_is_confirmed_and_takes_the_set_of_its_term():
    state, effects = step(member(MASTER), role.RoleFound(MASTER, 5))
    assert state.confirmed_s == 5
    assert effects == (role.ApplySet(MASTER.members, 7),)
    assert step(member(SLAVE), role.RoleFound(SLAVE, 5))[1] == ()


def test_a_forgotten_group_is_registered_again_and_other_refusals_are_errors():
    state = member(MASTER)
    known = refused(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST)
    assert step(state, role.RoleRefused(known))[1] == (role.Register(),)
    other = refused(ResponseCode.SYSTEM_ERROR)
    assert step(state, role.RoleRefused(other))[1] == (role.Fail(other),)


def test_a_problem_is_logged_once():
    state, effects = step(RoleState(), role.Failed("away"))
    assert effects == (role.LogProblem("away"),)
    assert step(state, role.Failed("away")) == (state, ())


def test_a_master_alone_in_its_set_confirms_all_of_its_log():
    alone = MASTER._replace(members=frozenset({1}))
    assert alone.start_offset(None, 100, 40) == 100
    assert alone.start_offset(frozenset({1, 2}), 100, 40) == 40
    assert MASTER.start_offset(None, 30, 40) == 30


@pytest.mark.parametrize(
    ("size", "late_s", "is_whole", "words"),
    [
        (1, 0, True, "minInSyncReplicas"),
        (2, 11, False, "no controller has confirmed for 10 s"),
        (2, 11, True, ""),
        (2, 9, False, ""),
    ],
)
def test_a_master_is_fenced_while_another_one_may_exist(size, late_s, is_whole, words):
    reason = role.fence_reason(
        set_size=size, least_in_sync=2, late_s=late_s, limit_s=10, is_whole=is_whole
    )
    assert words in reason
    assert bool(reason) == bool(words)
