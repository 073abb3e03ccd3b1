"""How much of a table a peer may take, and how fast."""

import pytest

from rmq.broker.quota import ADDED_AT_ONCE, ADDED_PER_S, NamedQuota, Quota
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.testing import ManualClock


def test_no_peer_gets_more_than_what_is_left_for_others():
    quota = Quota(100, "places", "wait")
    quota.reserve("greedy", 50)
    with pytest.raises(RequestRejected, match="greedy has 50"):
        quota.reserve("greedy")
    quota.reserve("other", 25)
    assert quota.used == 75


def entered(quota, peer, count):
    """Return how many of so many new entries the quota took."""
    done = 0
    for number in range(count):
        try:
            quota.add_entry(f"{peer}-{quota.used}-{number}", peer)
        except RequestRejected:
            return done
        done += 1
    return done


def test_after_a_rush_a_peer_adds_named_entries_at_a_pace():
    """5,000 groups a second held the loop for up to 136 ms."""
    clock = ManualClock()
    quota = NamedQuota(1_000_000, "groups", "delete some", clock)
    assert entered(quota, "10.0.0.1", 2 * ADDED_AT_ONCE) == ADDED_AT_ONCE
    with pytest.raises(
        RequestRejected, match=r"10\.0\.0\.1 added 5000 groups"
    ) as caught:
        quota.add_entry("one more", "10.0.0.1")
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    clock.ms += 2_000
    assert entered(quota, "10.0.0.1", 1_000) == 2 * ADDED_PER_S
    assert entered(quota, "10.0.0.2", 10) == 10, "others have their own pace"
    assert entered(quota, "", 2 * ADDED_AT_ONCE) == 2 * ADDED_AT_ONCE, "a tool has none"
    clock.ms += 3_600_000
    assert entered(quota, "10.0.0.1", 2 * ADDED_AT_ONCE) == ADDED_AT_ONCE


def test_without_a_clock_there_is_no_pace():
    quota = NamedQuota(1_000_000, "offsets", "wait")
    assert entered(quota, "10.0.0.1", ADDED_AT_ONCE + 1) == ADDED_AT_ONCE + 1
