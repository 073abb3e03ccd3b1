"""Words, names and lists that a consumer takes; what its first heartbeat has."""

import logging
from datetime import datetime

import pytest

from rmq.client import Consumer, Message, Producer, troubles
from rmq.client.troubles import INTERVAL_MS, MAX_TROUBLES, Troubles
from rmq.core.errors import ConfigError


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start": "earliest"}, "write 'first'"),
        ({"start": "latest"}, "write 'last'"),
        ({"start": "x"}, "is not 'first', 'last' or a datetime"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"mode": "x"}, "mode: 'x' is not one of 'auto', 'pull', 'pop'"),
        ({"strategy": "x"}, "strategy: 'x' is not one of"),
        ({"group": "bad group"}, "illegal characters"),
        ({"group": ""}, "blank"),
        ({"group": 5}, "5 is not a text"),
        ({"topics": 5}, "5 is not a topic, a list or a mapping"),
        ({"topics": [""]}, "blank"),
        ({"buffer_messages": "9"}, "is not a number"),
    ],
)
def test_a_wrong_option_is_named(options, text):
    with pytest.raises(ConfigError, match=text):
        Consumer("127.0.0.1:9", **({"group": "g", "topics": "T"} | options))


def test_a_list_of_topics_and_an_ack_that_is_awaited(broker, loop):
    async def scenario():
        topics = [f"list-{loop.name}-{number}" for number in range(2)]
        async with (
            Producer(broker.name_server) as producer,
            Consumer(broker.name_server, f"g-{loop.name}", topics, start="first") as it,
        ):
            for topic in topics:
                await producer.send(Message(topic, b"x"))
            found = it.deliveries()
            first, second = await anext(found), await anext(found)
            assert {first.topic, second.topic} == set(topics)
            awaited = await first.ack()
            assert awaited is True
            results = [second.ack(), second.ack()]
            assert [bool(each) for each in results] == [True, False]

    loop(scenario)


def test_the_first_heartbeat_has_the_retry_topic(broker, loop):
    seen = []

    class Watched(Consumer):
        def consumer_data(self):
            found = super().consumer_data()
            seen.append({each.topic for each in found.subscription_data_set})
            return found

    async def scenario():
        async with Watched(broker.name_server, "retries", "first-heartbeat"):
            pass

    loop(scenario)
    assert all("%RETRY%retries" in each for each in seen)


def test_a_trouble_has_few_lines(monkeypatch, caplog):
    now = [0]
    monkeypatch.setattr(troubles, "steady_ms", lambda: now[0])
    log = Troubles()
    caplog.set_level(logging.WARNING)
    for now[0] in range(0, 2 * INTERVAL_MS, 1_000):
        log.report("b", "broker b is away", "refused")
    log.end("b", "broker b is back")
    log.end("b", "broker b is back")
    assert [each.getMessage() for each in caplog.records] == [
        "broker b is away: refused",
        "broker b is away for 60 s: refused",
        "broker b is back, after 119.0 s",
    ]


def test_with_many_troubles_new_ones_have_a_line(monkeypatch, caplog):
    """Their keys are of servers: with too many of them the oldest is forgotten."""
    now = [0]
    monkeypatch.setattr(troubles, "steady_ms", lambda: now[0])
    monkeypatch.setattr(troubles.logger, "filters", [])
    log = Troubles()
    caplog.set_level(logging.WARNING)
    for number in range(MAX_TROUBLES):
        log.report(number, f"broker {number} is away", "refused")
    now[0] = 2 * INTERVAL_MS
    log.report(0, "broker 0 is away", "refused")
    log.report("new", "broker new is away", "refused")
    log.end("new", "broker new is back")
    log.end(0, "broker 0 is back")
    log.end(1, "broker 1 is back")
    assert [each.getMessage() for each in caplog.records[MAX_TROUBLES:]] == [
        "broker 0 is away for 120 s: refused",
        "broker new is away: refused",
        "broker new is back, after 0.0 s",
        "broker 0 is back, after 120.0 s",
    ]


def test_a_text_as_the_body_of_a_test_message(broker):
    with pytest.raises(TypeError, match="encode a text"):
        broker.send("T", "text")
