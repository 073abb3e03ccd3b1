"""What waits for a time, open transactions, brokers: views of a running broker."""

import json

import pytest

from rmq.core.errors import RequestRejected
from rmq.observe.machine_views import HALF_HOUR_MS, HALF_HOURS
from rmq.observe.views import show_view
from rmq.protocol.codes import RequestCode
from rmq.protocol.message import Message
from rmq.testing import RawClient, running_node
from tests.observe.test_monitor import NOW, ask, incident  # noqa: F401


@pytest.fixture
def view(incident):  # noqa: F811
    async def show(name, **query):
        found = await show_view(incident.broker, name, query, None)
        return json.loads(json.dumps(found))

    return show


def put(incident, **properties):  # noqa: F811
    broker = incident.broker
    broker.topics.ensure("Orders", queues=1, perm=6)
    message = Message(
        "Orders", 0, b"x", 0, 0, broker.clock.now_ms(), broker.store_host,
        properties=properties,
    )  # fmt: skip
    broker.put.put(message)
    broker.arrivals.flush()


async def test_delays(incident, view):  # noqa: F811
    for _ in range(3):
        put(incident, DELAY="4")  # 30 s
    incident.clock.ms += 45_000
    found = await view("delays")
    level = found["levels"][3]
    assert (level["delay_ms"], level["waiting"], level["next"]) == (
        30_000, 3, NOW + 30_000,
    )  # fmt: skip
    assert level["late_ms"] == 15_000
    assert [each["waiting"] for each in found["levels"]].count(0) == 17
    assert len(found["timer"]["half_hours"]) == HALF_HOURS


async def test_timed_messages_by_half_hour(incident, view):  # noqa: F811
    wheel = incident.broker.store.timer.wheel
    precision_ms = incident.broker.store.timer.precision_ms
    for number, after_ms in enumerate((60_000, HALF_HOUR_MS * 3, HALF_HOUR_MS * 60)):
        wheel.add((NOW + after_ms) // precision_ms, number, recalls=False)
    timer = (await view("delays"))["timer"]
    assert (timer["half_hours"][0], timer["half_hours"][3]) == (1, 1)
    assert (timer["later"], timer["waiting"], timer["late_ms"]) == (1, 3, 0)
    assert timer["next"] == NOW + 60_000 + precision_ms


async def test_open_transactions(incident, view):  # noqa: F811
    for n in range(3):
        put(incident, TRAN_MSG="true", PGROUP="P", KEYS=f"k{n}", UNIQ_KEY=f"U{n}")
    incident.clock.ms += 90_000
    found = await view("transactions")
    assert (found["total"], len(found["rows"])) == (3, 3)
    row = found["rows"][0]
    assert (row["topic"], row["group"], row["key"]) == ("Orders", "P", "k0")
    assert (row["age_ms"], row["checks"], row["id"]) == (90_000, "0", "U0")
    assert (row["client"], found["check_max"]) == (None, 15)
    sender = await incident.connect()
    beat = {"clientID": "s1", "producerDataSet": [{"groupName": "P"}]}
    await ask(sender, RequestCode.HEART_BEAT, json.dumps(beat).encode())
    assert (await view("transactions"))["rows"][0]["client"] == "s1"


async def test_brokers(incident, view):  # noqa: F811
    found = await view("brokers")
    own = found["own"]
    assert (own["id"], own["role"]) == (0, "ASYNC_MASTER")
    assert own["memory"] > 1_000_000
    assert 0 < own["disk_early"] < own["disk_refuse"] < 1
    assert own["flush_p99_ms"] is None
    broker = incident.broker
    incident.monitor.sample()
    for _ in range(100):
        broker.store.durability.times.observe(4_000_000)
    incident.clock.ms += 10_000
    incident.monitor.sample()
    assert (await view("brokers"))["own"]["flush_p99_ms"] == 5
    assert found["name_servers"][0]["registered"]
    assert (found["replicas"], found["following"], found["cluster_rows"]) == (
        [], None, [],
    )  # fmt: skip


async def test_another_broker_that_does_not_answer_is_a_gap(incident, view):  # noqa: F811
    client = await incident.stack.enter_async_context(
        RawClient.connect(incident.node.name_servers[0])
    )
    body = b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}}}'
    await ask(
        client, RequestCode.REGISTER_BROKER, body, brokerName="far",
        brokerAddr="127.0.0.1:1", clusterName="DefaultCluster", haServerAddr="",
        brokerId="0",
    )  # fmt: skip
    (row,) = (await view("brokers"))["cluster_rows"]
    assert (row["name"], row["answers"], row["in"]) == ("far", False, None)
    for _ in range(2):
        with pytest.raises(RequestRejected, match="does not answer"):
            await view("broker", address="127.0.0.1:1")
    assert incident.monitor.other_brokers == {}


async def test_only_brokers_of_the_cluster_are_asked(incident, view):  # noqa: F811
    """Else whoever may look could have the broker connect to anything."""
    for address in (incident.node.name_servers[0], incident.node.address, ""):
        with pytest.raises(RequestRejected, match="no other broker is called"):
            await view("broker", address=address)


@pytest.mark.slow
async def test_another_broker_of_rmq_tells_by_itself(incident, view, tmp_path):  # noqa: F811
    settings = {
        "namesrvAddr": incident.node.name_servers[0], "brokerName": "other",
    }  # fmt: skip
    async with running_node(tmp_path / "other", settings) as other:
        other.broker.context.topics.ensure("Theirs", queues=3, perm=6)
        (row,) = (await view("brokers"))["cluster_rows"]
        told = await view("broker", address=row["address"])
        assert (told["node"], "told_by" in told) == ("other", False)
        assert [row["name"] for row in told["topics"]] == ["Theirs"]
