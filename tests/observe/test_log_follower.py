"""The log as it grows, against the messages that were sent; clients, changes."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.observe import log_follower
from rmq.observe.events import MAX_EVENTS, Events
from rmq.observe.findings import Problem
from rmq.protocol.codes import RequestCode
from rmq.remoting import turns
from rmq.testing import ManualClock
from tests.observe.test_monitor import ask, incident  # noqa: F401


class Follower:
    """Asks again and again, as `rmq tail` does."""

    def __init__(self, broker, may_read=lambda _: True, **query):
        self.broker, self.may_read, self.query = broker, may_read, query
        self.place = {}

    async def look(self):
        query = self.query | self.place
        found = await log_follower.follow_log(self.broker, query, self.may_read)
        json.dumps(found)
        self.place = {"offset": found["offset"], "event": found["event"]}
        return found

    async def bodies(self):
        return [row["text"] for row in (await self.look())["rows"]]


def make(incident):  # noqa: F811
    broker = incident.broker
    for name in ("Orders", "Payments"):
        broker.topics.ensure(name, queues=3, perm=6)
    return broker


async def test_messages_come_in_the_order_of_the_log(incident):  # noqa: F811
    broker = make(incident)
    broker.publish("Orders", b"before")
    follower = Follower(broker)
    assert await follower.bodies() == []
    for n in range(9):
        broker.publish(("Orders", "Payments")[n % 2], b"%d" % n)
    assert await follower.bodies() == [str(n) for n in range(9)]
    assert await follower.bodies() == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"topics": "Ord*"}, ["a"]), ({"topics": "*"}, ["a", "b"]),
        ({"topics": "orders"}, []), ({"key": "k-1"}, ["b"]), ({"text": "a"}, ["a"]),
        ({"system": "1"}, ["a", "b", "late"]), ({"n": "1"}, ["a"]),
    ],
)  # fmt: skip
async def test_filters(incident, query, expected):  # noqa: F811
    broker = make(incident)
    follower = Follower(broker, **query)
    await follower.look()
    broker.publish("Orders", b"a")
    broker.publish("Payments", b"b", keys="k-1 k-2")
    broker.publish("Orders", b"late", properties={"DELAY": "9"})
    assert await follower.bodies() == expected


async def test_nothing_is_shown_without_the_right(incident):  # noqa: F811
    broker = make(incident)
    follower = Follower(broker, may_read=lambda topic: topic == "Orders")
    await follower.look()
    broker.publish("Orders", b"mine")
    broker.publish("Payments", b"secret")
    found = await follower.look()
    assert ([row["text"] for row in found["rows"]], found["hidden"]) == (["mine"], 1)


async def test_what_does_not_fit_is_skipped_or_comes_later(incident, monkeypatch):  # noqa: F811
    broker = make(incident)
    short, whole = Follower(broker, n="2", skip="1"), Follower(broker, n="2")
    await short.look()
    await whole.look()
    for n in range(5):
        broker.publish("Orders", b"%d" % n)
    assert await short.bodies() == ["0", "1"]
    assert await short.bodies() == []
    rest = [await whole.bodies() for _ in range(3)]
    assert rest == [["0", "1"], ["2", "3"], ["4"]]
    monkeypatch.setattr(log_follower, "MAX_LOOKED", 3)
    picky = Follower(broker, key="none", waitMs="9000", offset="0")
    found = await picky.look()
    assert (found["looked"], found["rows"], found["behind"] > 0) == (3, [], True)


async def test_an_offset_inside_of_a_message_reads_nothing_of_it(incident):  # noqa: F811
    """A body may look like a record; only places that the broker named count."""
    broker = make(incident)
    broker.publish("Orders", b"first")
    record = broker.store.reads.record_at(0)
    start = int(broker.store.log.end_offset)
    probe = broker.publish("Orders", b"\0" * 8 + record)
    inside = int(broker.store.log.end_offset) - len(record) - 40
    for offset in (start + 1, inside, 10**17, probe.physical_offset + 12):
        follower = Follower(broker, offset=str(offset), waitMs="0")
        assert await follower.bodies() == []


@pytest.mark.usefixtures("without_ring")
async def test_messages_after_a_damaged_one_are_shown(incident):  # noqa: F811
    broker = make(incident)
    follower = Follower(broker)
    assert await follower.bodies() == []
    broker.publish("Orders", b"a")
    place = broker.store.log.end_offset
    for text in (b"b", b"c"):
        broker.publish("Orders", text)
    broker.store.log.file.pwrite(place + 4, b"junk")  # where its magic was
    assert await follower.bodies() == ["a", "c"]
    assert await follower.bodies() == []


@pytest.mark.usefixtures("without_ring")
async def test_others_run_while_a_follower_searches_after_damage(incident, monkeypatch):  # noqa: F811
    """A large damaged record is searched in parts."""
    monkeypatch.setattr(log_follower, "SEARCHED_BYTES", 1 << 10)
    monkeypatch.setattr(turns, "TURN_S", 0)
    broker = make(incident)
    follower = Follower(broker)
    assert await follower.bodies() == []
    place = broker.store.log.end_offset
    broker.publish("Orders", bytes(100 << 10))
    broker.publish("Orders", b"after")
    broker.store.log.file.pwrite(place + 4, b"junk")
    taken = []

    async def next_turn():
        taken.append(1)

    monkeypatch.setattr(broker, "next_turn", next_turn)
    assert await follower.bodies() == ["after"]
    assert len(taken) > 100


async def test_a_request_waits_for_the_next_message(incident, autojump_clock):  # noqa: F811
    del autojump_clock
    broker = make(incident)
    follower = Follower(broker, waitMs="300")
    assert await follower.bodies() == []


async def test_clients_and_changes(incident):  # noqa: F811
    follower = Follower(make(incident))
    await follower.look()
    client = await incident.client()
    body = json.dumps({"groupName": "G", "consumeEnable": False}).encode()
    await ask(client, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    found = await follower.look()
    assert [(e["kind"], e["subject"]) for e in found["events"]] == [
        ("came", "G"), ("admin", found["events"][1]["subject"]),
    ]  # fmt: skip
    assert found["events"][0]["message"] == "c1 came from 127.0.0.1 (PYTHON)"
    assert (
        "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP group G" in found["events"][1]["message"]
    )
    await client.stream.aclose()
    while incident.broker.consumers.client_ids("G"):
        await incident.broker.next_turn()
    (left,) = (await follower.look())["events"]
    assert left["message"] == (
        "c1 at 127.0.0.1 left, its connection was lost; no client is left"
    )
    assert (await follower.look())["events"] == []


async def test_a_problem_is_an_event_once(incident):  # noqa: F811
    follower = Follower(make(incident))
    await follower.look()
    await incident.send(3)
    incident.commit(1)
    incident.pass_time(90)
    events = (await follower.look())["events"]
    of_group = [e for e in events if e["subject"] == "G"]
    assert [e["kind"] for e in of_group] == ["problem"]
    assert of_group[0]["message"].startswith("No client consumes")


def quiet_broker(clock):
    """What events ask a broker for; nobody joins, leaves or changes anything."""
    consumers = SimpleNamespace(on_join=[], on_leave=[])
    return SimpleNamespace(
        clock=clock, consumers=consumers, audit=SimpleNamespace(on_add=[])
    )


@given(st.integers(0, 3 * MAX_EVENTS), st.integers(0, 4 * MAX_EVENTS))
def test_since_gives_what_is_newer_and_kept(count, since):
    events = Events()
    events.attach(quiet_broker(ManualClock(1)))
    for n in range(count):
        events.add_problem(
            Problem(level="bad", kind="x", subject="p", message=f"{n + 1}", action="")
        )
    expected = [n for n in range(1, count + 1) if n > since and n > count - MAX_EVENTS]
    assert [each.number for each in events.events_after(since)] == expected


@pytest.mark.parametrize("field", ["offset", "event", "n", "waitMs"])
async def test_wrong_numbers(incident, field):  # noqa: F811
    with pytest.raises(RequestRejected, match=f"{field}=x is not a number"):
        await Follower(incident.broker, **{field: "x"}).look()
