"""Chords in the log: which part calls the body, and how much is read."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RmqError
from rmq.integrations import chords
from rmq.integrations.chords import (
    ChordCall,
    ChordLog,
    ChordPart,
    ChordReading,
    ChordReadings,
    ChordSize,
)
from rmq.integrations.task_link import TaskLink
from rmq.integrations.topics import Topics
from rmq.testing import BrokerThread
from tests.integrations.test_forks import exit_code_of_child

numbers = itertools.count()


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        opened = TaskLink([running.name_server])
        opened.connect()
        yield opened
        opened.close()


@pytest.fixture
def log(link):
    return ChordLog(link, Topics(link, may_create=True), f"chords-{next(numbers)}")


def part(name):
    return ChordPart(0, name, "SUCCESS", name)


def reading_of(messages):
    reading = ChordReading(0)
    for offset, message in enumerate(messages):
        reading.add(offset, message)
    return reading


def callers(messages):
    """The offsets of the parts that may call, when each has read up to itself."""
    return [
        offset
        for offset, message in enumerate(messages)
        if isinstance(message, ChordPart)
        and reading_of(messages[: offset + 1]).may_call(offset, message.task_id)
    ]


def test_the_part_that_completes_calls():
    messages = [part("a"), ChordSize(3), part("b"), part("a"), part("c"), part("b")]
    assert callers(messages) == [4]


def test_a_worker_that_died_before_the_call_calls_at_its_second_part():
    messages = [ChordSize(2), part("a"), part("b"), part("a"), part("b")]
    assert callers(messages) == [2, 4]


def test_a_chord_that_was_called_is_not_called_again():
    messages = [ChordSize(2), part("a"), part("b"), ChordCall(), part("b")]
    assert callers(messages) == [2]


def test_a_reading_that_is_further_decides_as_before():
    messages = [ChordSize(2), part("a"), part("b"), part("a")]
    reading = reading_of(messages)
    found = [reading.may_call(at, messages[at].task_id) for at in (1, 2, 3)]
    assert found == [False, True, False]


@given(st.lists(st.sampled_from("abcd"), max_size=20), st.integers(0, 20))
def test_one_task_calls_and_only_with_all_parts(names, position):
    size = len(set("abcd"))
    messages = [part(each) for each in names]
    messages.insert(min(position, next_complete(names)), ChordSize(size))
    found = callers(messages)
    if set(names) != set("abcd"):
        assert found == []
        return
    called = {messages[at].task_id for at in found}
    assert len(called) == 1
    seen = {
        each.task_id for each in messages[: found[0]] if isinstance(each, ChordPart)
    }
    assert seen == set("abcd") - called


def next_complete(names):
    """How many parts there are before the one that completes."""
    seen = set()
    for at, name in enumerate(names):
        seen.add(name)
        if len(seen) == 4:
            return at
    return len(names)


def test_each_part_is_read_once_by_a_process(log, monkeypatch):
    decoded = []
    decode_all = chords.decode_all

    def count(*given):
        found = decode_all(*given)
        decoded.extend(found)
        return found

    monkeypatch.setattr(chords, "decode_all", count)
    start, readings = log.end(), ChordReadings()
    log.store("g", ChordSize(40))
    for number in range(40):
        name = str(number)
        offset = log.store("g", part(name))
        reading = readings.read(log, "g", start, offset)
    assert reading.may_call(offset, name)
    assert len(decoded) <= 41


def test_a_part_reads_for_as_long_as_messages_come(log, monkeypatch):
    start = log.end()
    for number in range(100):
        last = log.store("g", part(str(number)))
    monkeypatch.setattr(chords, "VISIBLE_S", 0.1)
    found = []
    for each in log.read("g", start, last):
        found.append(each)
        time.sleep(0.002)
    assert len(found) == 100


def test_a_part_that_does_not_become_visible_is_an_error(log, monkeypatch):
    monkeypatch.setattr(chords, "VISIBLE_S", 0.05)
    start = log.end()
    last = log.store("g", ChordSize(1))
    with pytest.raises(RmqError, match="the body is not called"):
        list(log.read("g", start, last + 1))


def test_other_chords_of_the_topic_do_not_count(log):
    start = log.end()
    log.store("other", ChordSize(1))
    log.store("g", ChordSize(1))
    log.store("other", part("x"))
    last = log.store("g", part("a"))
    assert ChordReadings().read(log, "g", start, last).may_call(last, "a")


def test_a_child_begins_without_readings(log):
    readings, start = ChordReadings(), log.end()
    log.store("g", ChordSize(2))
    last = log.store("g", part("a"))
    parents = readings.read(log, "g", start, last)
    assert (
        exit_code_of_child(lambda: readings.read(log, "g", last, last) is parents) == 0
    )
