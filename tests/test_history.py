"""Each kind of bad history is found, and nothing in good ones."""

import random
import time

import pytest

from rmq.protocol.codes import ResponseCode
from tests.history import Fault, History, Kind, Place

REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


def at(offset, queue_id=0, broker="b"):
    return Place("T", queue_id, offset, broker)


@pytest.fixture
def history():
    """Three messages, one after the other, at the first offsets of one queue."""
    made = History()
    for number, key in enumerate("abc"):
        made.invoke(key)
        made.answer(key, 0, at(number))
    return made


GOOD = [("a", at(0)), ("b", at(1)), ("c", at(2))]


def kinds(faults):
    return {fault.kind for fault in faults}


def test_a_good_history_has_no_faults(history):
    assert history.faults(GOOD, is_in_order=True) == []
    assert history.faults(reversed(GOOD)) == []


def test_an_acknowledged_message_that_is_not_there(history):
    assert history.faults(GOOD[:2]) == [Fault(Kind.LOST, "c", at(2))]


def test_a_message_that_was_never_acknowledged_may_be_lost(history):
    history.invoke("d")
    history.invoke("e")
    history.answer("e", ResponseCode.FLUSH_SLAVE_TIMEOUT)
    assert history.faults(GOOD) == []
    assert history.faults([*GOOD, ("e", at(3)), ("d", at(4))]) == []


def test_a_message_at_another_place_than_its_sender_was_told(history):
    moved = [*GOOD[:2], ("c", at(0, queue_id=1))]
    assert kinds(history.faults(moved)) == {Kind.MOVED}


def test_a_place_that_shows_another_message_later(history):
    history.invoke("d")
    history.invoke("e")
    assert history.faults([*GOOD, ("d", at(3))]) == []
    faults = history.faults([*GOOD, ("e", at(3))])
    assert faults == [Fault(Kind.CHANGED, "e", at(3), "d")]


def test_two_masters_that_promise_one_place(history):
    history.invoke("d")
    history.answer("d", 0, at(2))
    faults = history.faults([*GOOD, ("d", at(2))])
    assert Fault(Kind.CHANGED, "d", at(2), "c") in faults


def test_places_of_another_broker_are_others(history):
    history.invoke("d")
    history.answer("d", 0, at(2, broker="other"))
    assert history.faults([*GOOD, ("d", at(2, broker="other"))]) == []


def test_a_message_that_is_there_twice(history):
    assert kinds(history.faults([*GOOD, ("c", at(3))])) == {Kind.REPEATED}
    assert history.faults([*GOOD, ("c", at(3))], delayed=["T"]) == []


def test_a_message_that_is_read_twice_at_its_place(history):
    assert history.faults([*GOOD, GOOD[1], GOOD[2]], is_in_order=True) == []


def test_a_message_that_was_sent_twice_may_be_there_twice(history):
    history.invoke("d")
    history.invoke("d")
    history.answer("d", 0, at(4))
    assert history.faults([*GOOD, ("d", at(3)), ("d", at(4))]) == []
    found = [*GOOD, ("d", at(3)), ("d", at(4)), ("d", at(5))]
    assert kinds(history.faults(found)) == {Kind.REPEATED}


def test_a_message_that_was_refused(history):
    history.invoke("d")
    history.answer("d", REFUSED)
    assert history.faults(GOOD) == []
    assert kinds(history.faults([*GOOD, ("d", at(3))])) == {Kind.REFUSED}


def test_a_refusal_says_nothing_of_an_earlier_send(history):
    history.invoke("d")
    history.invoke("d")
    history.answer("d", REFUSED)
    assert history.faults([*GOOD, ("d", at(3))]) == []


def test_a_message_that_nobody_sent(history):
    assert kinds(history.faults([*GOOD, ("x", at(3))])) == {Kind.UNKNOWN}


def test_a_queue_with_a_hole(history):
    history.invoke("d")
    assert kinds(history.faults([*GOOD, ("d", at(4))])) == {Kind.HOLE}


def test_a_queue_may_begin_later():
    history = History()
    history.invoke("a")
    assert history.faults([("a", at(70))]) == []


def test_a_message_before_one_that_was_answered_before_its_send():
    history = History()
    for key, offset in (("a", 1), ("b", 0)):
        history.invoke(key)
        history.answer(key, 0, at(offset))
    faults = history.faults([("b", at(0)), ("a", at(1))])
    assert faults == [Fault(Kind.OVERTAKEN, "b", at(0), "a")]
    assert history.faults([("b", at(0)), ("a", at(1))], delayed=["T"]) == []


def test_messages_on_their_way_together_have_any_order():
    history = History()
    history.invoke("a")
    history.invoke("b")
    history.answer("a", 0, at(1))
    history.answer("b", 0, at(0))
    assert history.faults([("b", at(0)), ("a", at(1))]) == []


def test_reads_without_places_keep_the_order_of_a_lane():
    history = History()
    for key in "ab":
        history.invoke(key, lane="one")
        history.answer(key)
    history.invoke("c", lane="other")
    history.answer("c")
    good = [("c", None), ("a", None), ("b", None), ("a", None)]
    assert history.faults(good) == []
    assert kinds(history.faults([good[0], *good[2:]])) == {Kind.OVERTAKEN}
    assert kinds(history.faults(good[:2])) == {Kind.LOST}


def test_a_message_that_comes_before_those_that_precede_it(history):
    read = [GOOD[0], GOOD[2], GOOD[1], GOOD[2]]
    assert history.faults(read) == []
    assert kinds(history.faults(read, is_in_order=True)) == {Kind.EARLY}


def test_only_some_were_promised(history):
    part = history.of("ab".__contains__)
    assert part.faults(GOOD) == part.faults(GOOD[:2]) == []
    assert kinds(part.faults(GOOD[:1])) == {Kind.LOST}
    assert kinds(history.faults(GOOD[:2])) == {Kind.LOST}


def model(sent, reads):
    """Slow: each pair of messages of a queue, each message alone."""
    places = dict(reads)
    faults = set()
    for key, (invoked, _, _) in sent.items():
        for _, answered, place in sent.values():
            mine = places[key]
            is_before = place.queue == mine.queue and mine.offset < place.offset
            if is_before and answered < invoked:
                faults.add((Kind.OVERTAKEN, key))
    return faults


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_judged_as_a_slow_model_judges_it(seed):
    chance, history, sent = random.Random(seed), History(), {}
    offsets = [list(range(20)), list(range(20))]
    for queue in offsets:
        queue.sort(key=lambda offset: offset + chance.uniform(0, 6))
    waiting, moment = [], 0
    while any(offsets) or waiting:
        queue_id = chance.randrange(2)
        if offsets[queue_id] and (len(waiting) < 3 or chance.random() < 0.5):
            place = at(offsets[queue_id].pop(0), queue_id)
            history.invoke(place)
            waiting.append((place, moment))
        elif waiting:
            place, invoked = waiting.pop(chance.randrange(len(waiting)))
            history.answer(place, 0, place)
            sent[place] = invoked, moment, place
        moment += 1
    reads = [(place, place) for place in sorted(sent)]
    found = history.faults(reads)
    assert {(fault.kind, fault.key) for fault in found} == model(sent, reads)
    assert len({(fault.kind, fault.key) for fault in found}) == len(found)


@pytest.mark.slow
def test_half_a_million_messages_take_seconds():
    history, count = History(), 500_000
    for number in range(count):
        history.invoke(number)
        history.answer(number, 0, at(number // 4, number % 4))
    began = time.monotonic()
    reads = [(number, at(number // 4, number % 4)) for number in range(count)]
    assert history.faults(reads, is_in_order=True) == []
    assert time.monotonic() - began < 30
