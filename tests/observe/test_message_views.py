"""Messages in views: found by id, key, time and text; bodies within their limits."""

import json
import zlib

import pytest

from rmq.core.errors import RequestRejected
from rmq.observe import message_views, record_reader
from rmq.observe.views import show_view
from rmq.protocol.flags import COMPRESSED, COMPRESSION_LZ4
from rmq.protocol.message import Message
from tests.broken_bodies import BROKEN, PLAIN, WHOLE
from tests.observe.test_monitor import incident  # noqa: F401

HOSTILE = "<img src=x onerror=alert(1)>\x1b[2J\u202e\u0000"


class Messages:
    """A broker with messages of a topic with two queues."""

    def __init__(self, of_incident):
        self.incident = of_incident
        self.broker = of_incident.broker
        self.asked = []
        self.broker.topics.ensure("Orders", queues=2, perm=6)

    def put(self, body=b"x", queue_id=0, sys_flag=0, topic="Orders", **properties):
        broker = self.broker
        self.incident.clock.ms += 1_000
        message = Message(
            topic, queue_id, body, 0, sys_flag, broker.clock.now_ms(),
            broker.store_host, properties=properties,
        )  # fmt: skip
        result = broker.put.put(message)
        broker.arrivals.flush()
        return result

    async def show(self, view="messages", **query):
        query = {"topic": "Orders"} | query
        found = await show_view(self.broker, view, query, self.asked.append)
        return json.loads(json.dumps(found, default=lambda data: data.decode("latin1")))

    async def bodies(self, **query):
        return [row["text"] for row in (await self.show(**query))["rows"]]


@pytest.fixture
def messages(incident):  # noqa: F811
    return Messages(incident)


async def test_the_newest_of_all_queues_come_first(messages):
    for n in range(6):
        messages.put(b"%d" % n, queue_id=n % 2)
    assert await messages.bodies() == ["5", "4", "3", "2", "1", "0"]
    found = await messages.show(n="2")
    assert [row["text"] for row in found["rows"]] == ["5", "4"]
    assert (found["looked"], found["complete"]) == (2, False)
    assert (await messages.show())["complete"]
    assert messages.asked == ["Orders"] * 3
    assert await messages.bodies(queue="1") == ["5", "3", "1"]
    assert await messages.bodies(queue="1", offset="1") == ["3", "5"]


async def test_from_a_time_on(messages):
    for n in range(6):
        messages.put(b"%d" % n, queue_id=n % 2)
    times = {row["text"]: row["stored"] for row in (await messages.show())["rows"]}
    assert await messages.bodies(at=str(times["2"])) == ["2", "3", "4", "5"]
    assert await messages.bodies(at=str(times["5"] + 1)) == []


async def test_by_key_and_by_both_kinds_of_ids(messages):
    messages.put(b"one", KEYS="k-1 k-2", UNIQ_KEY="AC10000100002A9F0000000000000001")
    messages.put(b"two", KEYS="k-2")
    assert await messages.bodies(key="k-1") == ["one"]
    assert sorted(await messages.bodies(key="k-2")) == ["one", "two"]
    assert await messages.bodies(key="k-3") == []
    assert await messages.bodies(id="AC10000100002A9F0000000000000001") == ["one"]
    one = await messages.show("message", queue="0", offset="0")
    assert await messages.bodies(id=one["offset_id"], topic="") == ["one"]
    assert await messages.bodies(id="A" * 32) == []


async def test_by_text(messages, monkeypatch):
    packed = zlib.compress(b"needle" * 9)
    messages.put(b"some needle here")
    messages.put(b"nothing", TAGS="needle")
    messages.put(packed, sys_flag=COMPRESSED)
    for _ in range(3):
        messages.put(b"hay")
    assert len(await messages.bodies(q="needle")) == 3
    monkeypatch.setattr(message_views, "MAX_LOOKED", 4)
    found = await messages.show(q="needle")
    assert (len(found["rows"]), found["looked"], found["complete"]) == (1, 4, False)
    monkeypatch.setattr(message_views, "MAX_READ", 1)
    assert (await messages.show(q="needle"))["looked"] == 1


async def test_a_hostile_message_is_only_data(messages):
    messages.put(HOSTILE.encode(), KEYS=HOSTILE[:-1], TAGS=HOSTILE[:-1])
    (row,) = (await messages.show())["rows"]
    assert (row["key"], row["text"]) == (HOSTILE[:-1], HOSTILE)


async def test_bodies_are_opened_up_to_a_limit(messages):
    bomb = zlib.compress(b"\0" * 50_000_000)
    messages.put(bomb, sys_flag=COMPRESSED)
    messages.put(b"\xff\xfe" * 100_000)
    messages.put(b"lz4", sys_flag=COMPRESSED | COMPRESSION_LZ4)
    messages.put(b"no zlib", sys_flag=COMPRESSED)
    found = [await messages.show("message", offset=str(at)) for at in range(4)]
    sizes = [len(each["body"]) for each in found]
    assert sizes == [record_reader.MAX_OPENED, record_reader.MAX_OPENED, 3, 7]
    assert [each["cut"] for each in found] == [True, True, False, False]
    assert [each["compressed"] for each in found] == ["zlib", "", "lz4", "zlib"]
    assert [each["opened"] for each in found] == [True, True, False, False]
    assert found[0]["stored_size"] == len(bomb)


async def test_broken_bodies_are_shown_as_they_are_stored(messages, packages):
    sent = [*BROKEN.values(), *WHOLE.values()]
    for flag, body in sent:
        messages.put(body, sys_flag=flag)
    assert len((await messages.show())["rows"]) == len(sent)
    for at, (_, body) in enumerate(sent):
        found = await messages.show("message", offset=str(at))
        if not found["opened"]:
            assert found["body"] == body.decode("latin-1")
    assert found["opened"] == packages
    assert found["body"] == (PLAIN if packages else body).decode("latin-1")


async def test_who_has_passed_a_message(messages):
    broker = messages.broker
    for _ in range(5):
        messages.put(TAGS="b")
    broker.offsets.commit("c", "Ahead", "Orders", 0, 4)
    broker.offsets.commit("c", "Behind", "Orders", 0, 1)
    journey = (await messages.show("message", offset="3"))["journey"]
    assert {row["group"]: (row["state"], row["before"]) for row in journey} == {
        "Ahead": ("passed", None), "Behind": ("waits", 2),
    }  # fmt: skip


async def test_dead_letters_by_topic_and_tag(messages):
    broker = messages.broker
    broker.topics.ensure("%DLQ%G", queues=1, perm=6)
    for tag in "aab":
        messages.put(topic="%DLQ%G", DLQ_ORIGIN_TOPIC="Orders", TAGS=tag)
    (row,) = (await messages.show("dead"))["rows"]
    assert (row["name"], row["kept"], row["last"] - row["first"]) == ("G", 3, 2_000)
    assert messages.asked == []
    found = await messages.show("dead", name="G")
    assert messages.asked == ["%DLQ%G"]
    assert found["kinds"] == [
        {"topic": "Orders", "tag": "a", "count": 2},
        {"topic": "Orders", "tag": "b", "count": 1},
    ]


@pytest.mark.parametrize(
    ("name", "query", "remark"),
    [
        ("messages", {"topic": ""}, "topic is missing"),
        ("messages", {"topic": "Order"}, "did you mean Orders?"),
        ("messages", {"at": "-1"}, "at=-1 is not a number"),
        ("messages", {"offset": "1"}, "offset needs queue"),
        ("messages", {"queue": "x"}, "queue=x is not a number"),
        ("message", {"offset": "9" * 19}, "is not a number"),
        ("message", {"offset": "7"}, "queue 0 of Orders has the offsets 0 to 0, not 7"),
        ("message", {"queue": "1"}, "queue 1 of Orders is empty"),
        ("dead", {"name": "No"}, "no group with dead letters is called No"),
    ],
)
async def test_wrong_queries(messages, name, query, remark):
    messages.put()
    with pytest.raises(RequestRejected) as caught:
        await messages.show(name, **query)
    assert remark in caught.value.remark


async def test_without_the_right_nothing_is_read(messages):
    messages.put(b"secret")
    record = await messages.show("message")

    def refuse(topic):
        raise RequestRejected(16, f"no right to {topic}")

    for name, query in (
        ("messages", {"topic": "Orders"}), ("message", {"topic": "Orders"}),
        ("messages", {"id": record["offset_id"]}),
    ):  # fmt: skip
        with pytest.raises(RequestRejected, match="no right to Orders"):
            await show_view(messages.broker, name, query, refuse)
