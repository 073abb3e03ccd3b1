"""Locks of orderly consumers: held, renewed, expired, given back, limited."""

import json

import pytest

from rmq.broker.queue_locks import LOCK_TIME_MS


def queue(number, topic="T"):
    return {"brokerName": "broker-a", "queueId": number, "topic": topic}


def ask(caller, code, client, *numbers, group="G", **more):
    body = {
        "clientId": client,
        "consumerGroup": group,
        "mqSet": [queue(number) for number in numbers],
        "onlyThisBroker": False,
        **more,
    }
    return caller.call(code, {}, json.dumps(body).encode())


def lock(caller, client, *numbers, **more):
    answer = ask(caller, 41, client, *numbers, **more)
    assert answer.code == 0
    return [each["queueId"] for each in json.loads(answer.body)["lockOKMQSet"]]


def test_a_queue_belongs_to_the_first_that_asks(caller):
    assert lock(caller, "one", 0, 1) == [0, 1]
    assert lock(caller, "two", 1, 2) == [2]
    assert lock(caller, "one", 1, 2) == [1]
    assert lock(caller, "two", 0, group="H") == [0]


def test_the_answer_names_whole_queues(caller):
    answer = ask(caller, 41, "one", 1)
    assert json.loads(answer.body) == {"lockOKMQSet": [queue(1)]}


def test_only_the_holder_gives_back(caller):
    lock(caller, "one", 0)
    assert ask(caller, 42, "two", 0).code == 0
    assert lock(caller, "two", 0) == []
    answer = ask(caller, 42, "one", 0, 7)
    assert (answer.code, answer.body) == (0, b"")
    assert lock(caller, "two", 0) == [0]


def test_a_lock_ends_a_minute_after_it_was_last_asked_for(caller, clock):
    lock(caller, "one", 0)
    clock.ms += LOCK_TIME_MS - 1
    assert lock(caller, "two", 0) == []
    assert lock(caller, "one", 0) == [0]
    clock.ms += LOCK_TIME_MS - 1
    assert lock(caller, "two", 0) == []
    clock.ms += 1
    assert lock(caller, "two", 0) == [0]
    assert lock(caller, "one", 0) == []


def test_only_live_locks_make_a_group_orderly(caller, clock):
    locks = caller.broker.queue_locks
    assert not locks.is_orderly("G")
    lock(caller, "one", 0)
    assert locks.is_orderly("G")
    assert not locks.is_orderly("H")
    clock.ms += LOCK_TIME_MS
    assert not locks.is_orderly("G")


def test_retry_message_of_an_orderly_group_is_dead(caller):
    caller.send("%RETRY%G", b"first", reconsumeTimes=1)
    lock(caller, "one", 0)
    caller.send("%RETRY%G", b"second", reconsumeTimes=1)
    store = caller.broker.store
    assert store.reads.max_offset("%RETRY%G", 0) == 1
    assert store.reads.max_offset("%DLQ%G", 0) == 1


def test_locks_are_limited_and_expired_ones_make_room(caller, clock, monkeypatch):
    monkeypatch.setattr(caller.broker.queue_locks.quota, "limit", 6)  # 3 a host
    assert lock(caller, "one", 0, 1, 2, 3) == [0, 1, 2]
    assert lock(caller, "two", 0, group="H") == []
    assert lock(caller, "one", 2) == [2]
    ask(caller, 42, "one", 2)
    assert lock(caller, "two", 0, group="H") == [0]
    clock.ms += LOCK_TIME_MS
    assert lock(caller, "two", 5, 6, 7, 8, group="H") == [5, 6, 7]


@pytest.mark.parametrize("code", [41, 42])
@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"clientId": None}, "clientId"),
        ({"clientId": "x" * 1_025}, "clientId"),
        ({"consumerGroup": ""}, "group is blank"),
        ({"mqSet": [queue(0, "bad topic")]}, "illegal characters"),
        ({"mqSet": [{**queue(0), "brokerName": "b" * 1_025}]}, "brokerName"),
        ({"mqSet": [queue(n) for n in range(16_385)]}, "several requests"),
        ({"mqSet": 7}, "mqSet"),
    ],
)
def test_bad_bodies(caller, code, more, text):
    answer = ask(caller, code, "one", 0, **more)
    assert answer.code != 0
    assert text in answer.remark
    assert not caller.broker.queue_locks.is_orderly("G")
