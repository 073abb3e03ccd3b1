"""What a broker of Java tells: asked of a broker of rmq, which tells the same."""

import json

import pytest

from rmq.observe import java_broker
from rmq.observe.java_broker import JavaBroker
from rmq.observe.reasons import NOBODY_MS
from rmq.observe.views import show_view
from rmq.protocol.command import Command
from tests.observe.test_monitor import incident

__all__ = ["incident"]


class Asking:
    """A broker as `JavaBroker` sees it; counts what it was asked."""

    def __init__(self, world, client):
        self._world, self._client = world, client
        self.told = JavaBroker("b", "c", world.clock.now_ms)
        self.codes = []

    async def look(self, without=()):
        """Ask what it wants to know; codes in `without` are refused."""
        questions, answer = self.told.poll_requests(), None
        while True:
            try:
                code, fields = questions.send(answer)
            except StopIteration:
                return self.told.overview()
            self.codes.append(code)
            command = Command.request(code)
            command.ext_fields = dict(fields)
            reply = await self._client.call(command)
            is_refused = code in without or reply.code
            answer = None if is_refused else bytes(reply.body)


@pytest.fixture
async def asking(incident):
    for group in ("G", "late"):
        incident.broker.groups.find(group)  # makes it
    await incident.send(4)
    await incident.send(2, queue_id=1)
    incident.commit(1)
    incident.commit(2, queue_id=1)
    incident.broker.offsets.commit("c", "late", "T", 0, 0)
    incident.broker.offsets.commit("c", "late", "T", 1, 2)
    return Asking(incident, await incident.connect())


async def test_it_tells_the_same(incident, asking):
    incident.monitor.sample()
    own = await show_view(incident.broker, "overview", {}, None)
    told = await asking.look()
    names = {"name", "lag", "topics", "level"}
    rows = [{name: row[name] for name in names} for row in told["groups"]]
    assert rows == [{name: row[name] for name in names} for row in own["groups"]]
    (topic,) = told["topics"]
    assert (topic["name"], topic["queues"], topic["groups"]) == ("T", 4, 2)
    assert (topic["lag"], topic["kept"]) == (own["topics"][0]["lag"], None)
    assert (told["put"], told["node"], told["cluster"]) == (6, "b", "c")
    assert 0 < told["disk"]["share"] < 1
    assert (told["groups_total"], told["topics_total"]) == (2, 1)


async def test_speeds_and_reasons_are_from_samples(incident, asking):
    await asking.look()
    incident.clock.ms += 10_000
    await incident.send(10)
    incident.commit(6)
    told = await asking.look()
    (topic,) = told["topics"]
    assert (topic["in"], topic["out"]) == (1.0, 0.5)
    assert [row["message"] for row in told["groups"]] == [
        "No client consumes; 14 messages wait.", "",
    ]  # fmt: skip
    incident.clock.ms += NOBODY_MS
    told = await asking.look()
    (late, usual) = told["groups"]
    assert (late["clients"], late["out"], late["lag"]) == (0, 0.0, 14)
    assert usual["message"] == ""  # it may have finished messages a moment ago
    (problem,) = told["problems"]
    assert (problem["group"], problem["level"]) == ("late", "warn")
    since_ms = problem["since_ms"]
    incident.clock.ms += 60_000
    (problem, other) = (await asking.look())["problems"]
    assert (problem["level"], problem["since_ms"]) == ("bad", since_ms)
    assert other["group"] == "G"
    incident.broker.offsets.commit("c", "late", "T", 0, 14)
    incident.commit(14)
    incident.clock.ms += 1_000
    assert (await asking.look())["problems"] == []


async def test_clients_are_asked_for_where_messages_wait(incident, asking):
    member = await incident.client("c1")
    incident.broker.offsets.commit("c", "late", "T", 0, 4)
    told = await asking.look()
    (waits, keeps_up) = told["groups"]
    assert (waits["name"], waits["clients"]) == ("G", 1)
    assert (keeps_up["name"], keeps_up["clients"]) == ("late", None)
    incident.clock.ms += 90_000
    await asking.look()
    incident.clock.ms += 2_000
    (problem,) = (await asking.look())["problems"]
    assert problem["kind"] == "unexplained"  # who fetched what is not told
    await member.stream.aclose()


async def test_a_broker_is_not_asked_too_often(incident, asking, monkeypatch):
    await asking.look()
    await asking.look()
    assert asking.codes == [28, 317, 203, 203, 28]
    incident.clock.ms += java_broker.LEAST_PAUSE_MS
    await asking.look()
    assert asking.codes[5:] == [28, 317, 203, 203]


async def test_what_is_refused_is_not_told(incident, asking):
    told = await asking.look(without=(28, 317))
    assert (told["groups"], told["topics"], told["disk"]["share"]) == ([], [], None)
    assert (told["groups_total"], told["topics_total"]) == (None, None)
    assert json.dumps(told)


async def test_a_large_broker_has_an_end(incident, asking, monkeypatch):
    monkeypatch.setattr(java_broker, "MAX_QUEUES", 2)
    await asking.look()
    assert asking.told.unwatched == 6
