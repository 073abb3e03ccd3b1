"""Members with different subscriptions: logged once per change, counted."""

import logging

from rmq.broker.mismatch import SubscriptionMismatches
from rmq.protocol.bodies.heartbeat import SubscriptionData


def wants(text, topic="T"):
    return [SubscriptionData(topic=topic, sub_string=text)]


def test_a_difference_is_logged_once_with_both_sides(caplog):
    mismatches = SubscriptionMismatches()
    with caplog.at_level(logging.WARNING):
        mismatches.record_member("G", "one", wants("A"))
        for _ in range(3):
            mismatches.record_member("G", "two", wants("B"))
            mismatches.record_member("G", "one", wants("A"))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "two subscribes to T TAG B, one to T TAG A" in line
    assert mismatches.statistics()[:2] == (1, 1)


def test_a_change_is_logged_again_and_agreement_ends_it():
    mismatches = SubscriptionMismatches()
    mismatches.record_member("G", "one", wants("A"))
    mismatches.record_member("G", "two", wants("B"))
    mismatches.record_member("G", "two", wants("C"))
    assert mismatches.statistics()[:2] == (1, 2)
    mismatches.record_member("G", "two", wants("A"))
    assert mismatches.statistics()[:2] == (0, 2)


def test_a_member_that_leaves_takes_its_difference_along():
    mismatches = SubscriptionMismatches()
    mismatches.record_member("G", "one", wants("A"))
    mismatches.record_member("G", "two", wants("B"))
    mismatches.remove_member("G", "two")
    assert mismatches.statistics()[:2] == (0, 1)
    mismatches.remove_member("G", "one")
    mismatches.record_member("G", "two", wants("B"))
    assert mismatches.statistics()[:2] == (0, 1)


def test_a_member_that_came_back_outlives_its_old_connection():
    mismatches = SubscriptionMismatches()
    mismatches.record_member("G", "one", wants("A"), "old")
    mismatches.record_member("G", "two", wants("B"), "other")
    mismatches.record_member("G", "one", wants("A"), "new")
    mismatches.remove_member("G", "one", "old")
    assert mismatches.statistics() == (1, 1, 2)
    mismatches.remove_member("G", "one", "new")
    assert mismatches.statistics() == (0, 1, 1)


def test_a_difference_that_ended_and_comes_back_is_logged_again():
    mismatches = SubscriptionMismatches()
    mismatches.record_member("G", "one", wants("A"))
    for expected in (1, 2):
        mismatches.record_member("G", "two", wants("B"))
        assert mismatches.statistics()[:2] == (1, expected)
        mismatches.record_member("G", "two", wants("A"))
        assert mismatches.statistics()[:2] == (0, expected)
