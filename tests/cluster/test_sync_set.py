"""Who counts for acknowledgements: rules one by one, and against a controller."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.epochs import EpochFile
from rmq.cluster.sync_set import SyncSet
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Handshake
from rmq.core.errors import RemoteProtocolError

MAX_LAG_MS = 15_000


def alone(end=100, **more):
    more = {"number": 5, "start": end, "confirm_offset": end} | more
    return SyncSet(1, {1}, max_lag_ms=MAX_LAG_MS, **more)


def pair(end=100):
    """A master at 100 and the broker 2, which the controller has confirmed."""
    group = alone(end)
    group.report(2, end, end=end, now_ms=0)
    group.request_change(group.desired_set(end, 0))
    is_applied = group.apply({1, 2}, 6)
    assert is_applied
    return group


def test_a_master_alone_confirms_what_it_has():
    group = alone()
    assert group.confirm_offset(100) == 100
    assert group.confirm_offset(130) == 130
    assert group.desired_set(130, 0) is None
    assert group.required_acks == {1}


def test_a_broker_joins_when_it_has_all_that_is_confirmed():
    group = alone()
    group.report(2, 90, end=120, now_ms=0)
    assert group.confirm_offset(120) == 120
    assert group.desired_set(120, 0) is None
    group.report(2, 119, end=120, now_ms=0)
    assert group.desired_set(120, 0) is None
    group.report(2, 120, end=120, now_ms=0)
    assert group.desired_set(120, 0) == {1, 2}


def test_it_does_not_join_before_it_has_the_begin_of_the_epoch():
    group = SyncSet(
        1, {1, 2}, number=1, start=100, confirm_offset=50, max_lag_ms=MAX_LAG_MS
    )
    group.report(2, 60, end=100, now_ms=0)
    group.report(3, 60, end=100, now_ms=0)
    assert 3 not in group.desired_set(100, 0)
    group.report(3, 100, end=100, now_ms=0)
    assert 3 in group.desired_set(100, 0)


def test_it_counts_from_the_question_on():
    group = alone()
    group.report(2, 100, end=100, now_ms=0)
    group.request_change(group.desired_set(100, 0))
    assert group.required_acks == {1, 2}
    assert group.members == {1}
    assert group.confirm_offset(150) == 100
    group.cancel_request()
    assert group.required_acks == {1}
    assert group.confirm_offset(150) == 150


def test_a_lost_connection_is_asked_out_at_once_and_acknowledges_nothing():
    group = pair()
    group.report(2, 140, end=150, now_ms=1)
    assert group.confirm_offset(150) == 140
    group.remove(2)
    assert group.offline_brokers == {2}
    assert group.desired_set(150, 1) == {1}
    assert group.confirm_offset(150) == 140
    group.request_change(frozenset({1}))
    assert group.confirm_offset(200) == 140  # also while it is asked
    is_applied = group.apply({1}, 7)
    assert is_applied
    assert group.confirm_offset(200) == 200


def test_a_slow_broker_is_asked_out_after_its_time():
    group = pair()
    group.report(2, 110, end=150, now_ms=10)
    assert group.desired_set(150, MAX_LAG_MS) is None
    assert group.desired_set(150, MAX_LAG_MS + 1) == {1}
    group.record_at_end(2, 5_000)
    assert group.desired_set(150, MAX_LAG_MS + 1) is None


def test_a_broker_that_came_back_with_less_is_asked_out_at_once():
    group = pair()
    group.report(2, 150, end=150, now_ms=0)
    assert group.confirm_offset(150) == 150
    group.remove(2)
    group.report(2, 120, end=150, now_ms=1)
    assert group.confirm_offset(150) == 150
    assert group.desired_set(150, 1) == {1}


def test_a_question_without_an_answer_is_repeated():
    group = pair()
    group.remove(2)
    wanted = group.desired_set(100, 0)
    group.request_change(wanted)
    group.report(2, 100, end=100, now_ms=1)
    assert group.desired_set(100, 1) == wanted
    group.request_change(wanted)


def test_an_older_set_changes_nothing():
    group = pair()
    is_applied = group.apply({1}, 6)
    assert not is_applied
    is_applied = group.apply({1}, 5)
    assert not is_applied
    assert group.members == {1, 2}


def test_impossible_reports_are_refused():
    group = pair()
    with pytest.raises(RemoteProtocolError, match="the log ends at 100"):
        group.report(2, 101, end=100, now_ms=0)
    with pytest.raises(RemoteProtocolError, match="this broker, 1"):
        group.report(1, 100, end=100, now_ms=0)


class Controller(RuleBasedStateMachine):
    """A slow obvious model: whoever may be in the set had every confirmed byte.

    The controller carries requests out, loses requests, loses answers; brokers come,
    go, and come back with less.
    """

    def __init__(self):
        super().__init__()
        self.group = alone(0, number=0)
        self.end = 0
        self.now_ms = 0
        self.set, self.number = frozenset({1}), 0
        self.logs = {2: 0, 3: 0}
        """What each broker really has."""
        self.durable = dict(self.logs)
        self.flying = []
        self.known = 0

    @rule(size=st.integers(1, 3))
    def append(self, size):
        self.end += size

    @rule(each=st.sampled_from([2, 3]), size=st.integers(0, 5))
    def copy(self, each, size):
        self.logs[each] = min(self.end, self.logs[each] + size)
        self.group.report(each, self.logs[each], end=self.end, now_ms=self.now_ms)

    @rule(each=st.sampled_from([2, 3]))
    def disconnect(self, each):
        self.group.remove(each)

    @rule(passed=st.integers(1, 20_000))
    def wait(self, passed):
        self.now_ms += passed

    @rule()
    def ask(self):
        wanted = self.group.desired_set(self.end, self.now_ms)
        if wanted is not None:
            self.group.request_change(wanted)
            self.flying.append((wanted, self.group.number))

    @precondition(lambda self: self.flying)
    @rule(is_answered=st.booleans())
    def carry_out(self, is_answered):
        wanted, number = self.flying.pop(0)
        if number == self.number and wanted != self.set:
            self.set, self.number = wanted, self.number + 1
            if is_answered:
                self.group.apply(self.set, self.number)
        elif is_answered and self.group.requested == wanted:
            if self.number > self.group.number:
                self.group.apply(self.set, self.number)
            else:
                self.flying = [each for each in self.flying if each[0] != wanted]
                self.group.cancel_request()

    @precondition(lambda self: self.flying)
    @rule()
    def lose(self):
        self.flying.pop(0)

    @rule()
    def tell(self):
        self.group.apply(self.set, self.number)

    @invariant()
    def every_possible_master_has_what_is_confirmed(self):
        confirmed = self.group.confirm_offset(self.end)
        for each in self.set - {1}:
            assert self.logs[each] >= confirmed, (each, self.logs, confirmed)
        assert self.set <= self.group.required_acks

    @invariant()
    def it_only_grows(self):
        confirmed = self.group.confirm_offset(self.end)
        assert self.known <= confirmed <= self.end
        self.known = confirmed


TestController = Controller.TestCase
TestController.settings = settings(max_examples=60, stateful_step_count=30)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6))
def test_confirmed_is_what_the_last_of_them_has(offsets):
    ids = range(2, 2 + len(offsets))
    group = SyncSet(
        1, {1, *ids}, number=1, start=0, confirm_offset=0, max_lag_ms=MAX_LAG_MS
    )
    for each, offset in zip(ids, offsets, strict=True):
        group.report(each, offset, end=50, now_ms=0)
    assert group.confirm_offset(50) == min(offsets)


def test_what_the_own_disk_lacks_is_not_confirmed_to_slaves(tmp_path):
    """Under SYNC_FLUSH: it may go with a power cut, and slaves' readers had seen it."""
    confirm, group = Watermark(100), pair()
    group.report(2, 150, end=150, now_ms=0)
    control = TermState(Handshake(1), 1, EpochFile(tmp_path / "epochs"), confirm, group)
    assert group.confirm_offset(150) == 150
    assert control.confirm_offset(150) == 100
    confirm.advance(130)
    assert control.confirm_offset(150) == 130
