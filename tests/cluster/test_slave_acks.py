"""What replicas have, against a slow model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.slave_acks import Acks
from rmq.core.errors import RemoteProtocolError
from tests.cluster.conftest import count_in_sync

STEPS = st.lists(
    st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9)))
)


@given(needed=st.integers(0, 3), steps=STEPS)
def test_enough_replicas_have_what_is_replicated(needed, steps):
    acks, model, proven = Acks(needed), {}, {}
    for replica, offset in steps:
        if offset is None:
            acks.remove(replica)
            model.pop(replica, None)
            proven.pop(replica, None)
        elif offset < model.get(replica, 0):
            with pytest.raises(RemoteProtocolError):
                acks.report(replica, offset, sent=9)
        else:
            acks.report(replica, offset, sent=9)
            if replica in model:  # the first report asks where to begin
                proven[replica] = offset
            model[replica] = offset
        reached = [
            offset
            for offset in range(10)
            if sum(has >= offset for has in proven.values()) >= needed > 0
        ]
        assert acks.replicated_offset() == max(reached, default=0)
        for replica in "abc":
            assert acks.offset_of(replica) == model.get(replica, -1)
        assert count_in_sync(acks, 9, 3) == sum(has > 6 for has in model.values())


def test_a_replica_cannot_have_what_it_was_not_sent():
    acks = Acks(1)
    with pytest.raises(RemoteProtocolError, match=r"reported 101.*only up to 100"):
        acks.report("a", 101, sent=100)
    assert acks.replicated_offset() == 0


def test_a_report_never_sinks():
    acks = Acks(1)
    acks.report("a", 50, sent=100)
    acks.report("a", 50, sent=100)
    with pytest.raises(RemoteProtocolError, match="reported offset 49 after 50"):
        acks.report("a", 49, sent=100)
    assert acks.replicated_offset() == 50


def test_one_replica_counts_once_however_often_it_reports():
    acks = Acks(2)
    for offset in (10, 20, 30):
        acks.report("a", offset, sent=100)
    assert acks.replicated_offset() == 0


def test_the_first_report_of_a_connection_counts_for_nobody():
    """A forked replica asks for its last record, which the master does not have."""
    acks = Acks(1)
    acks.report("a", 50, sent=50)
    assert (acks.offset_of("a"), acks.replicated_offset()) == (50, 0)
    acks.report("a", 60, sent=100)
    assert acks.replicated_offset() == 60
    acks.remove("a")
    acks.report("a", 60, sent=100)
    assert acks.replicated_offset() == 0
