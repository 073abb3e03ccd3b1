"""Incidents on a running broker: the sentence, and that it goes when mended."""

import json
import time
from contextlib import AsyncExitStack
from itertools import pairwise

import pytest
import trio

from rmq._fastpath.reactor.rpc_times import RpcTime
from rmq.observe import monitor as watch_module
from rmq.observe import sampling
from rmq.observe.snapshot import group_facts
from rmq.observe.views import show_view
from rmq.protocol.bodies.heartbeat import HeartbeatData
from rmq.protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.testing import ManualClock, RawClient, running_node
from tests.observe.test_pages import SEND, Scrape, get

NOW = 1_800_000_000_000


class Incident:
    """A broker with a clock by hand, and clients."""

    def __init__(self, node, clock, stack):
        self.node, self.clock, self.stack = node, clock, stack
        self.broker = node.broker.context
        self.monitor = self.broker.monitor

    async def client(self, name="c1", tags="*"):
        client = await self.connect()
        await self.beat(client, name, tags)
        return client

    async def connect(self):
        return await self.stack.enter_async_context(
            RawClient.connect(self.node.address)
        )

    async def beat(self, client, name, tags="*"):
        body = {
            "clientID": name,
            "consumerDataSet": [
                {
                    "groupName": "G", "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [
                        {"topic": "T", "subString": tags, "subVersion": 1}
                    ],
                }
            ],
        }  # fmt: skip
        beat = HeartbeatData.decode(json.dumps(body).encode())
        await ask(client, RequestCode.HEART_BEAT, beat.encode())

    async def send(self, count, queue_id=0):
        client = await self.connect()
        for _ in range(count):
            fields = SEND | {"queueId": str(queue_id)}
            await ask(client, RequestCode.SEND_MESSAGE, b"x", **fields)

    async def pull(self, client, offset, queue_id=0, count=8):
        fields = {
            "consumerGroup": "G", "topic": "T", "queueId": str(queue_id),
            "queueOffset": str(offset), "maxMsgNums": str(count), "sysFlag": "0",
            "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "1",
        }  # fmt: skip
        return await ask(client, RequestCode.PULL_MESSAGE, **fields)

    def commit(self, offset, queue_id=0):
        self.broker.offsets.commit("c", "G", "T", queue_id, offset)

    def pass_time(self, seconds, every_s=10):
        """Let time pass as the samples see it: one each 10 s."""
        for _ in range(seconds // every_s):
            self.clock.ms += every_s * 1_000
            self.broker.statistics.count_up()
            self.monitor.sample()

    def facts(self):
        steps = group_facts(self.broker, self.monitor, "G")
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                return stop.value

    def kinds(self):
        return [each.kind for each in self.monitor.problems if each.group == "G"]


async def ask(client, code, body=b"", **fields):
    command = Command.request(code, body=body)
    command.ext_fields = fields
    answer = await client.call(command)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


@pytest.fixture
async def incident(tmp_path):
    clock = ManualClock(NOW)
    settings = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
    async with (
        running_node(tmp_path, settings, clock=clock) as node,
        AsyncExitStack() as stack,
    ):
        yield Incident(node, clock, stack)


async def test_nobody_consumes(incident):
    client = await incident.client()
    await incident.send(5)
    incident.commit(1)
    await client.stream.aclose()
    while incident.broker.consumers.client_ids("G"):
        await incident.broker.next_turn()
    incident.monitor.sample()
    assert incident.kinds() == []
    incident.pass_time(10)
    (problem,) = [each for each in incident.monitor.problems if each.group == "G"]
    assert problem.level == "warn"
    incident.pass_time(70)
    (problem,) = [each for each in incident.monitor.problems if each.group == "G"]
    assert problem.level == "bad"
    assert problem.message.startswith(
        "No client consumes; 4 messages wait. The last client "
    )
    assert "(its connection was lost)" in problem.message
    assert "c1 at 127.0.0.1:" in problem.details[0]
    incident.pass_time(60)
    assert incident.monitor.problems[0].since_ms <= incident.clock.now_ms() - 60_000
    incident.commit(5)
    incident.pass_time(10)
    assert incident.kinds() == []
    assert incident.monitor.progress.groups == {}


@pytest.mark.parametrize("pause_s", [2, 10])
async def test_nobody_does_not_blink(incident, pause_s):
    """The client had fetched messages: a minute later the problem vanished for 2 s."""
    client = await incident.client()
    await incident.send(5)
    await incident.pull(client, 0)
    incident.commit(1)
    await client.stream.aclose()
    while incident.broker.consumers.client_ids("G"):
        await incident.broker.next_turn()
    seen = []
    for _ in range(180 // pause_s):
        incident.pass_time(pause_s, pause_s)
        found = [p for p in incident.monitor.problems if p.group == "G"]
        seen.append([(each.kind, each.level) for each in found])
    first = next(n for n, kinds in enumerate(seen) if kinds)
    assert first * pause_s <= 12
    last = seen.index([("nobody", "bad")])
    assert seen[first:last] == [[("nobody", "warn")]] * (last - first)
    assert seen[last:] == [[("nobody", "bad")]] * (len(seen) - last)


async def test_a_group_that_pops_needs_no_members_to_be_there(incident):
    """gRPC clients send no heartbeats; they pop through the proxy."""
    client = await incident.connect()
    await incident.send(5)
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "0", "maxMsgNums": "4",
        "invisibleTime": "900000", "pollTime": "0", "bornTime": "0", "initMode": "0",
        "order": "false",
    }  # fmt: skip
    await ask(client, RequestCode.POP_MESSAGE, **fields)
    await ask(client, RequestCode.POP_MESSAGE, **fields)
    incident.pass_time(90)
    assert incident.kinds() == []
    await incident.send(2)
    await incident.broker.next_turn()
    incident.pass_time(20)
    facts = incident.facts()
    assert facts.lag == 2, facts
    assert incident.kinds() == ["nobody"], facts


@pytest.mark.slow
@pytest.mark.parametrize("was_online", [True, False])
async def test_nobody_is_named_within_15_s(incident, was_online, monkeypatch):
    """The watch takes the samples itself, while the clock runs 100 times faster."""
    monkeypatch.setattr(watch_module, "SAMPLE_S", 0.1)
    monkeypatch.setattr(watch_module, "LOOKED_AT_SAMPLE_S", 0.02)
    began = time.monotonic()
    incident.clock.now_ms = lambda: NOW + round((time.monotonic() - began) * 100_000)
    incident.clock.steady_ms = incident.clock.now_ms
    incident.commit(0)
    incident.monitor.mark_viewed()
    while incident.monitor.is_viewed:  # noqa: ASYNC110 - the clock wakes nobody
        await trio.sleep(0.001)
    if was_online:
        client = await incident.client()
        await incident.send(1)
        await client.stream.aclose()
        while incident.broker.consumers.client_ids("G"):
            await incident.broker.next_turn()
    left_ms = incident.clock.now_ms()
    await incident.send(2)
    with trio.fail_after(3):
        while "nobody" not in incident.kinds():  # noqa: ASYNC110 - nor do problems
            await trio.sleep(0.001)
    assert incident.clock.now_ms() - left_ms <= 15_000


async def test_a_blocked_handler_and_a_queue_of_nobody(incident):
    client = await incident.client()
    await incident.send(4)
    await incident.send(4, queue_id=1)
    await incident.pull(client, 0)
    incident.commit(0)
    incident.commit(0, queue_id=1)
    incident.pass_time(90)
    problem = next(each for each in incident.monitor.problems if each.group == "G")
    assert problem.kind == "unowned"
    assert problem.message.startswith("Queue 1 of T has no owner")
    assert any("c1 finished nothing for" in each for each in problem.details)
    assert any("with 4 messages in flight" in each for each in problem.details)


async def test_compiled_pulls_tell_whose_queue_it_is(incident):
    client = await incident.client()
    await incident.send(9)
    for offset in range(4):
        await incident.pull(client, offset, count=1)
    served = incident.broker.native_counts()
    assert any(n for (_, code), (n, _) in served.items() if code == 11), served
    incident.broker.statistics.count_up()
    incident.commit(1)
    incident.pass_time(20)
    (queue, *_) = [q for q in incident.facts().queues if q.queue_id == 0]
    assert (queue.owner, queue.in_flight, queue.lag) == ("c1", 3, 8)


async def test_members_that_differ(incident):
    await incident.client("c1")
    two = await incident.client("c2", tags="paid")
    incident.pass_time(10)
    assert incident.kinds() == ["members-differ"]
    await incident.beat(two, "c2")
    incident.pass_time(10)
    assert incident.kinds() == []


async def test_a_paused_group_names_who_paused_it(incident):
    await incident.client()
    await incident.send(2)
    incident.commit(1)
    body = json.dumps({"groupName": "G", "consumeEnable": False}).encode()
    admin = await incident.connect()
    await ask(admin, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
    incident.pass_time(70)
    (problem, *_) = [each for each in incident.monitor.problems if each.group == "G"]
    assert problem.kind == "paused"
    assert "consumeEnable is false, set by 127.0.0.1" in problem.message


async def test_a_clock_that_is_ahead(incident):
    incident.clock.ms -= 60_000  # SEND is born at 1,800,000,000,000
    for _ in range(2):
        await incident.send(1)
        incident.monitor.sample()
    (problem,) = [each for each in incident.monitor.problems if each.kind == "clock"]
    assert problem.message.startswith("The clock of sender 127.0.0.1 is ")
    assert problem.message.endswith(" ahead.")


async def test_a_clock_of_a_sender_that_is_gone_is_forgotten(incident):
    incident.clock.ms -= 60_000
    for _ in range(2):
        await incident.send(1)
        incident.monitor.sample()
    incident.pass_time(590)
    assert "clock" in [each.kind for each in incident.monitor.problems]
    incident.pass_time(20)
    assert "clock" not in [each.kind for each in incident.monitor.problems]


async def test_the_log_grows_lately(incident):
    """Forecasts of minutes need seconds, forecasts of days ten minutes."""
    body = bytes(100_000)
    incident.broker.topics.ensure("T", queues=1, perm=6)
    for _ in range(2):
        for _ in range(10):
            incident.broker.publish("T", body, queue_id=0)
        incident.pass_time(10)
    disk = incident.monitor.log_growth.disk_usage(
        incident.broker, incident.clock.now_ms()
    )
    assert disk.growth_per_hour is None
    assert disk.lately_per_hour == pytest.approx(360 * 1_000_000, rel=0.1)
    incident.pass_time(40)
    disk = incident.monitor.log_growth.disk_usage(
        incident.broker, incident.clock.now_ms()
    )
    assert disk.lately_per_hour == 0


async def test_a_note_is_no_event_until_it_is_more(incident):
    client = await incident.client()
    await incident.send(4)
    await incident.pull(client, 0)
    incident.commit(0)
    incident.pass_time(20)
    assert incident.kinds() == ["blocked"]
    events = incident.monitor.events.events_after(0)
    assert "problem" not in [each.kind for each in events]
    incident.pass_time(60)
    (event,) = [
        e for e in incident.monitor.events.events_after(0) if e.kind == "problem"
    ]
    assert "blocked handler" in event.message


async def test_dead_letters_that_are_sent_again_are_no_problem(incident):
    incident.broker.topics.ensure("%DLQ%G", queues=1, perm=6)
    for number in range(6):
        if number == 2:
            incident.clock.ms += 3_700_000  # two of them are older than an hour
        incident.broker.publish("%DLQ%G", b"x", queue_id=0)
    incident.pass_time(10)
    dead = incident.monitor.dead_letters
    assert dead.of_hour(incident.clock.now_ms()) == [("G", 4)]
    dead.exclude_resent("G", {0, 3})  # the oldest that counts is 2; 3 is one of a tag
    dead.exclude_resent("G", {3})
    assert dead.of_hour(incident.clock.now_ms()) == [("G", 3)]
    dead.exclude_resent("G", {2, 4})
    assert dead.of_hour(incident.clock.now_ms()) == [("G", 1)]
    dead.exclude_resent("G", {2, 3, 4, 5})
    incident.pass_time(10)
    assert incident.kinds() == []
    incident.broker.publish("%DLQ%G", b"x", queue_id=0)
    incident.pass_time(10)
    (problem,) = [each for each in incident.monitor.problems if each.group == "G"]
    assert problem.message == "1 message became dead letters in the last hour."


async def test_dead_letters_of_an_hour(incident):
    incident.broker.topics.ensure("%DLQ%G", queues=1, perm=6)
    for _ in range(3):
        incident.broker.publish("%DLQ%G", b"x", queue_id=0)
    incident.pass_time(10)
    assert incident.kinds() == ["dead-letters"]
    (problem,) = [each for each in incident.monitor.problems if each.group == "G"]
    assert problem.message.startswith("3 messages became")
    incident.pass_time(3_700)
    assert incident.kinds() == []


async def test_the_doors_show_the_same(incident):
    await incident.send(3)
    incident.commit(1)
    incident.pass_time(90)
    client = await incident.connect()
    answer = await ask(client, OwnRequestCode.GET_VIEW, view="problems")
    rows = json.loads(answer.body)["rows"]
    assert [row["kind"] for row in rows if row["group"]] == ["nobody"]
    status, body = await get(incident.node, "/api/problems")
    assert (status, json.loads(body)["rows"]) == ("200 OK", rows)
    _, text = await get(incident.node, "/metrics")
    levels = {
        level: sum(r["level"] == level for r in rows) for level in ("bad", "warn")
    }
    scrape = Scrape(text)
    for level, number in levels.items():
        assert scrape.value("rmq_problems", level=level) == number


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({}, "view= is not one of"), ({"view": "x"}, "view=x is not one of"),
        ({"view": "topics", "sort": "y"}, "sort=y is not one of"),
        ({"view": "topics", "n": "-1"}, "n=-1 is not a number"),
        ({"view": "topic", "name": "Tt"}, "no topic is called Tt"),
        ({"view": "group"}, "name is missing"),
        ({"view": "group", "name": "Gg"}, "no group is called Gg; did you mean G?"),
    ],
)  # fmt: skip
async def test_queries_that_are_wrong(incident, fields, remark):
    incident.commit(0)
    client = await incident.connect()
    command = Command.request(OwnRequestCode.GET_VIEW)
    command.ext_fields = fields
    answer = await client.call(command)
    assert answer.code != ResponseCode.SUCCESS
    assert remark in answer.remark


async def test_a_group_with_many_topics_is_not_gone_through_at_once(
    incident, monkeypatch
):
    """One of 10,000 topics kept the broker from serving for 43 ms, each two seconds."""
    broker = incident.broker
    for n in range(1_200):
        broker.topics.ensure(f"many-{n}", queues=1, perm=6)
        broker.offsets.commit("c", "G", f"many-{n}", 0, 0)
    asked, steps = [], []
    get = broker.topics.get
    monkeypatch.setattr(
        broker.topics, "get", lambda name: asked.append(name) or get(name)
    )
    broker.publish("many-777", b"x", queue_id=0)
    broker.publish("many-888", b"x", queue_id=0)
    for _ in range(2):
        asked.clear()
        steps.clear()
        for _ in sampling.sample(broker, incident.monitor):
            steps.append(len(asked))
        most = max(after - before for before, after in pairwise(steps))
        assert most <= 500, most
        assert steps[-1] <= 1_300
    assert incident.facts().lag == 2
    assert [queue.topic for queue in incident.facts().queues[:2]] == [
        "many-777", "many-888"
    ]  # fmt: skip
    assert len(incident.facts().queues) == 400
    for name in ("many-777", "many-888"):
        broker.offsets.commit("c", "G", name, 0, 1)
    incident.monitor.sample()
    asked.clear()
    incident.monitor.sample()
    assert asked == []


async def test_a_deleted_group_is_not_behind_any_more(incident):
    await incident.send(3)
    incident.commit(1)
    incident.pass_time(10)
    assert incident.monitor.progress.groups.keys() == {"G"}
    incident.broker.offsets.remove_group("G")
    incident.monitor.sample()
    assert incident.monitor.progress.groups == {}


async def test_a_member_without_offsets_is_seen(incident):
    """Its first commit may come much later: the retry topic of a group, for one."""
    await incident.client()
    await incident.send(3)
    incident.pass_time(10)
    assert incident.monitor.progress.groups.keys() == {"G"}
    incident.broker.offsets.on_reset[0]("G")
    incident.pass_time(10)
    assert incident.monitor.progress.groups.keys() == {"G"}


async def test_lists(incident):
    client = await incident.client()
    await incident.send(3)
    incident.commit(1)
    for n in range(5):
        incident.broker.topics.ensure(f"quiet-{n}", queues=2, perm=6)
    incident.pass_time(20)

    async def view(kind, **query):
        answer = await ask(client, OwnRequestCode.GET_VIEW, view=kind, **query)
        return json.loads(answer.body)

    found = await view("topics", q="QUIET", sort="name", n="2", **{"from": "1"})
    assert (found["total"], found["found"]) == (6, 5)
    assert [row["name"] for row in found["rows"]] == ["quiet-1", "quiet-2"]
    found = await view("topics", sort="lag", up="1", n="3")
    assert [row["lag"] for row in found["rows"]] == [0, 0, 0]
    found = await view("topics", sort="lag", n="9")
    assert [row["lag"] for row in found["rows"]] == [2, 0, 0, 0, 0, 0]
    found = await view("topics", sort="name", up="1", n="2")
    assert [row["name"] for row in found["rows"]] == ["quiet-4", "quiet-3"]
    first = (await view("topics"))["rows"][0]
    assert (first["name"], first["lag"], first["kept"]) == ("T", 2, 3)
    (row,) = (await view("groups"))["rows"]
    assert (row["name"], row["lag"], row["clients"]) == ("G", 2, 1)
    group = await view("group", name="G")
    assert [q["lag"] for q in group["queues"] if q["lag"]] == [2]
    topic = await view("topic", name="T")
    assert topic["queues"][0]["end"] == "3"
    (one,) = [c for c in (await view("clients"))["rows"] if c["kind"] == "consumer"]
    assert (one["client"], one["group"]) == ("c1", "G")
    assert (await view("overview"))["groups"] == [row | {"waits_ms": 10_000}]


async def test_clients_have_their_library_and_their_speed(incident):
    """As far as commits tell it: while messages wait for them."""
    client = await incident.client()
    await incident.client("c2")
    await incident.send(40)
    incident.commit(0)
    await incident.pull(client, 0)

    async def shown(**query):
        found = await show_view(incident.broker, "clients", query, None)
        rows = {row["client"]: row for row in found["rows"]}
        return rows.get("c1"), rows.get("c2"), found["versions"]

    one, two, versions = await shown()
    assert (one["library"], one["done"], one["ms"]) == ("PYTHON 5.5.0", None, None)
    assert versions == [("PYTHON 5.5.0", 2)]
    for done in (8, 16, 24):
        incident.pass_time(10)
        await incident.pull(client, done)
        incident.broker.statistics.count_up()
        incident.commit(done)
    incident.pass_time(10)
    one, two, _ = await shown(q="python")
    assert (one["done"], one["ms"], one["in_hand"]) == (0.8, 1_250.0, 8)
    assert (two["done"], two["ms"], two["in_hand"]) == (None, None, None)
    assert (await shown(q="rust"))[2] == []


async def test_the_time_of_sends_is_that_of_the_last_minute(incident):
    incident.monitor.rpc_times = lambda: [
        RpcTime(10, 0, (99, 0, 0, 0, 0, 0, 0, 0, 0, 0), 9.0),
        RpcTime(310, 0, (0, count, 0, 0, 0, 0, 0, 0, 0, 0), 9.0),
        RpcTime(11, 0, (0, 0, 0, 0, 0, 0, 0, count, 0, 0), 9.0),
    ]

    async def p99_ms():
        found = await show_view(incident.broker, "overview", {}, None)
        return found["send_p99_ms"]

    count = 0
    incident.pass_time(10)
    assert await p99_ms() is None
    count = 7
    incident.pass_time(10)
    assert await p99_ms() == 3
    incident.pass_time(80)
    assert await p99_ms() is None


async def test_the_overview_keeps_the_order_of_topics_for_a_while(incident):
    """Amounts are of now; new topics, and another order, come after five seconds."""
    for n in range(4):
        incident.broker.topics.ensure(f"topic-{n}", queues=1, perm=6)

    async def overview(count):
        found = await show_view(incident.broker, "overview", {"n": str(count)}, None)
        return {row["name"]: row["kept"] for row in found["topics"]}

    first = await overview(2)
    assert len(first) == 2
    name = next(iter(first))
    incident.broker.publish(name, b"x", queue_id=0)
    incident.broker.topics.ensure("new", queues=1, perm=6)
    assert (await overview(2)) == {**first, name: 1}
    assert "new" not in await overview(1)
    assert len(await overview(9)) == 5
    incident.clock.ms += 5_000
    assert "new" in await overview(9)


async def test_the_overview_has_each_group_that_waits_at_once(incident):
    """Those that keep up are chosen every five seconds only."""
    for number in range(4):
        incident.broker.offsets.commit("c", f"g{number}", "T", 0, 0)

    async def overview(count=3):
        found = await show_view(incident.broker, "overview", {"n": str(count)}, None)
        rows = [(row["name"], row["lag"]) for row in found["groups"]]
        return rows, found["groups_total"]

    assert await overview() == ([("g0", 0), ("g1", 0), ("g2", 0)], 4)
    await incident.send(5)
    for number in range(4):
        incident.broker.offsets.commit("c", f"g{number}", "T", 0, 5)
    incident.broker.offsets.commit("c", "late", "T", 0, 2)
    incident.broker.offsets.commit("c", "later", "T", 0, 1)
    incident.monitor.sample()
    assert await overview() == ([("later", 4), ("late", 3), ("g0", 0)], 4)
    assert await overview(1) == ([("later", 4)], 4)
    assert len((await overview(6))[0]) == 6
    assert await overview() == ([("later", 4), ("late", 3), ("g0", 0)], 6)
    incident.commit(5)
    incident.clock.ms += 5_000
    assert (await overview(9))[1] == 7
