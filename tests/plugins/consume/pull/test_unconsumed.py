"""The log is kept for groups that have not consumed it."""

import pytest

TOPIC = "T"


@pytest.fixture
def caller(make_caller):
    made = make_caller(keep_unconsumed="G, T")
    for number in range(3):
        made.send(body=b"%d" % number)
    return made


def needed_from(caller):
    return caller.broker.store.cleaner.needed_from()


def position_of(caller, offset, queue_id=0):
    return caller.broker.messages.physical_at(TOPIC, queue_id, offset)


def test_a_group_keeps_the_log_from_its_offset(caller):
    caller.broker.offsets.commit("a test", "T", TOPIC, 0, 3)
    caller.broker.offsets.commit("a test", "G", TOPIC, 0, 1)
    assert needed_from(caller) == position_of(caller, 1)
    caller.broker.offsets.commit("a test", "G", TOPIC, 0, 2)
    assert needed_from(caller) == position_of(caller, 2)


def test_a_group_that_has_consumed_all_keeps_nothing(caller):
    for group in ("G", "T"):
        caller.broker.offsets.commit("a test", group, TOPIC, 0, 3)
    assert needed_from(caller) is None


def test_a_group_without_offsets_keeps_the_topic_of_its_name(caller):
    assert needed_from(caller) == position_of(caller, 0)


def test_other_groups_keep_nothing(make_caller):
    caller = make_caller()
    caller.send(body=b"x")
    caller.broker.offsets.commit("a test", "G", TOPIC, 0, 0)
    assert needed_from(caller) is None
