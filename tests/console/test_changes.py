"""Changes: planned, carried out, put back; refused without key, right or own page."""

import json
from errno import ENOSPC

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.access.signature import sign
from rmq.console import changes
from rmq.console import replaced as replaced_module
from rmq.console.changes import MAX_BODY
from rmq.console.replaced import ReplacedOffsets
from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.testing import ManualClock, RawClient, running_node
from tests.console.test_server import AUTH, ON, Browser

WRITE = {"rmq.consoleWrite": "true"}
RESET = {"group": "G", "topic": "Orders", "timestamp": -1}
CHANGES = {
    "updateTopic": {"topic": "Orders", "readQueueNums": 3},
    "updateSubGroup": {"group": "G", "consumeEnable": False},
    "resetOffsetByTime": RESET,
    "sendMessage": {"topic": "Orders", "body": "x", "key": "", "tag": ""},
    "resendDeadLetters": {"group": "G", "all": True},
}


def fill(node):
    broker = node.broker.context
    broker.topics.ensure("Orders", queues=2, perm=6)
    broker.topics.ensure("%DLQ%G", queues=1, perm=6)
    broker.groups.find("G")
    for number in range(6):
        broker.publish("Orders", b"x", queue_id=number % 2)
    for queue_id in range(2):
        broker.offsets.commit("c", "G", "Orders", queue_id, 1)
    for tag in ("a", "a", "b", ""):
        origin = {"DLQ_ORIGIN_TOPIC": "Orders"} if tag else {}
        broker.publish("%DLQ%G", b"dead", tags=tag, properties=origin)
    return broker


@pytest.fixture
async def opened(tmp_path):
    async with running_node(tmp_path, ON | WRITE) as node:
        yield fill(node), Browser(node.console_port)


async def do(browser, name, status=200, **fields):
    got, _, answer = await browser.post(f"/api/do/{name}", fields)
    assert got == status, answer
    return answer


async def replaced(browser, group):
    _, _, body = await browser.get(f"/api/replaced?group={group}")
    return json.loads(body)["rows"]


def audited(broker):
    return [change.action for change in broker.audit.all()]


def state(broker):
    """Everything that the changes of this file could touch."""
    reads = broker.store.reads
    return (
        broker.topics.get("Orders"), broker.groups.get("G"),
        dict(broker.offsets.queues("G", "Orders")), reads.max_offset("Orders", 0),
        reads.max_offset("Orders", 1), reads.max_offset("%RETRY%G", 0),
        audited(broker),
    )  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
async def test_a_dry_run_changes_nothing(opened, name):
    broker, browser = opened
    before = json.dumps(state(broker), default=repr)
    told = await do(browser, name, dry=True, **CHANGES[name])
    assert told["would"]
    assert told["command"].startswith("rmq ")
    assert told["refused"] == ""
    assert json.dumps(state(broker), default=repr) == before


@pytest.mark.parametrize("name", CHANGES)
async def test_each_change_is_in_the_audit(opened, name):
    broker, browser = opened
    await do(browser, name, **CHANGES[name])
    assert len(audited(broker)) == 1
    assert next(broker.audit.all()).source.startswith("127.0.0.1:")


async def test_settings(opened):
    broker, browser = opened
    told = await do(browser, "updateTopic", topic="Orders", readQueueNums=1, dry=True)
    assert told["would"] == [
        "readQueueNums 2 becomes 1.",
        "3 messages in the queues from 1 on can no longer be read.",
    ]
    await do(browser, "updateTopic", topic="Orders", readQueueNums=1, perm="4")
    config = broker.topics.get("Orders")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (1, 2, 4)
    await do(browser, "updateSubGroup", group="G", retryMaxTimes=3)
    assert broker.groups.get("G").retry_max_times == 3
    assert broker.groups.get("G").consume_enable


async def test_a_reset_can_be_put_back(opened):
    broker, browser = opened
    told = await do(browser, "resetOffsetByTime", **RESET, dry=True)
    assert told["would"] == [
        "2 queues go forward: 4 messages skipped without being read."
    ]
    done = await do(browser, "resetOffsetByTime", **RESET)
    assert dict(broker.offsets.queues("G", "Orders")) == {0: 3, 1: 3}
    back = await do(browser, "undo", undo=done["undo"], dry=True)
    assert back["would"] == ["2 queues get the old offset of G back."]
    await do(browser, "undo", undo=done["undo"])
    assert dict(broker.offsets.queues("G", "Orders")) == {0: 1, 1: 1}
    assert audited(broker) == ["INVOKE_BROKER_TO_RESET_OFFSET"] * 3
    told = await do(browser, "resetOffsetByTime", **RESET | {"timestamp": 0}, dry=True)
    assert told["would"] == ["2 queues go back: 2 messages to consume again."]


async def test_a_reset_can_be_put_back_after_a_stop(tmp_path):
    async with running_node(tmp_path, ON | WRITE) as node:
        broker = fill(node)
        await do(Browser(node.console_port), "resetOffsetByTime", **RESET)
        assert dict(broker.offsets.queues("G", "Orders")) == {0: 3, 1: 3}
    async with running_node(tmp_path, ON | WRITE) as node:
        broker, browser = node.broker.context, Browser(node.console_port)
        assert await replaced(browser, "H") == []
        (row,) = await replaced(browser, "G")
        assert (row["topic"], row["queues"]) == ("Orders", 2)
        assert 0 <= broker.clock.now_ms() - row["at"] < 60_000
        await do(browser, "undo", undo=row["key"])
        assert dict(broker.offsets.queues("G", "Orders")) == {0: 1, 1: 1}


async def test_a_reset_that_is_not_kept_is_not_done(opened, tmp_path, monkeypatch):
    broker, browser = opened

    def fail(*_):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(ReplacedOffsets, "write", fail)
    answer = await do(browser, "resetOffsetByTime", 400, **RESET)
    assert "not saved: No space left" in answer["error"]
    assert dict(broker.offsets.queues("G", "Orders")) == {0: 1, 1: 1}


async def test_a_reset_that_is_refused_is_not_kept(opened, monkeypatch):
    _, browser = opened

    async def refuse(*_):
        raise RequestRejected(ResponseCode.NO_PERMISSION, "not you")

    monkeypatch.setattr(changes, "serve_request", refuse)
    await do(browser, "resetOffsetByTime", 403, **RESET)
    assert await replaced(browser, "G") == []


async def test_only_the_last_resets_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(replaced_module, "MAX_RESETS", 3)
    table = ReplacedOffsets(tmp_path, ManualClock(1))
    keys = [await table.add("u", "G", "T", {0: n}) for n in range(5)]
    again = ReplacedOffsets(tmp_path, ManualClock(1))
    again.load()
    assert [again.get(key) is None for key in keys[:3]] == [True, True, False]
    assert again.get(keys[-1]).offsets == {0: 4}
    assert [row["key"] for row in again.resets_of("G")] == keys[:1:-1]


async def test_a_file_that_cannot_be_read_is_no_end(tmp_path, caplog):
    folder = tmp_path / "config"
    folder.mkdir()
    for ending in ("", ".bak"):
        (folder / f"rmqReplacedOffsets.json{ending}").write_text('{"resets": 1}')
    async with running_node(tmp_path, ON | WRITE) as node:
        fill(node)
        await do(Browser(node.console_port), "resetOffsetByTime", **RESET)
    assert "rmqReplacedOffsets.json" in caplog.text


async def test_a_message_is_sent(opened):
    broker, browser = opened
    end = [int(broker.store.reads.max_offset("Orders", q)) for q in range(2)]
    fields = {"topic": "Orders", "body": "ö 'x'", "key": "k", "tag": "t"}
    told = await do(browser, "sendMessage", **fields, dry=True)
    assert told["command"] == """rmq send Orders 'ö '"'"'x'"'"'' -k k -t t"""
    await do(browser, "sendMessage", **fields)
    ends = [int(broker.store.reads.max_offset("Orders", q)) for q in range(2)]
    assert sum(ends) == sum(end) + 1


async def test_a_message_has_properties(opened):
    broker, browser = opened
    fields = {"topic": "Orders", "body": "x", "key": "", "tag": ""}
    fields["properties"] = "color=red\n\n size=big one\n"
    told = await do(browser, "sendMessage", **fields, dry=True)
    assert told["command"] == "rmq send Orders x -p color=red -p 'size=big one'"
    ends = [int(broker.store.reads.max_offset("Orders", q)) for q in range(2)]
    await do(browser, "sendMessage", **fields)
    for queue, end in enumerate(ends):
        found = broker.store.reads.get("Orders", queue, end, 1)
        if found.body:
            assert decode_record(found.body).properties.decode().startswith("color")
            return
    raise AssertionError("nothing was stored")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"body": ""}, "A message needs a body"),
        ({"body": "x", "properties": "color"}, "Write NAME=VALUE in place of color"),
        ({"body": "x", "properties": "TAGS=a"}, "TAGS is a reserved property name"),
    ],
)
async def test_a_message_that_brokers_would_refuse(opened, fields, said):
    _, browser = opened
    answer = await do(
        browser, "sendMessage", topic="Orders", dry=True, status=400, **fields
    )
    assert said in str(answer)


async def test_a_message_waits_for_the_disk(tmp_path):
    sync = {"flushDiskType": "SYNC_FLUSH"}
    async with running_node(tmp_path, ON | WRITE | sync) as node:
        broker, browser = fill(node), Browser(node.console_port)
        told = await do(browser, "sendMessage", topic="Orders", body="x")
        assert told["done"][0].startswith("stored at offset ")
        stats = broker.store.statistics()
        assert stats.durable_offset == stats.end_offset


@pytest.mark.parametrize(
    ("chosen", "resent"),
    [
        ({"offsets": "0"}, 1), ({"offsets": "0,2"}, 2), ({"all": True}, 3),
        ({"topic": "Orders", "tag": "a"}, 2), ({"offsets": "9"}, 0),
    ],
)  # fmt: skip
async def test_dead_letters_come_again_to_their_group_alone(opened, chosen, resent):
    broker, browser = opened
    broker.monitor.sample()
    told = await do(browser, "resendDeadLetters", group="G", **chosen)
    assert told["done"][0].startswith(f"{resent} were sent again")
    assert int(broker.store.reads.max_offset("%RETRY%G", 0)) == resent
    assert int(broker.store.reads.max_offset("Orders", 0)) == 3
    if "offsets" in chosen:
        (dead,) = broker.monitor.dead_letters.of_hour(broker.clock.now_ms())
        assert dead == ("G", 4 - resent)
    if resent:
        place = broker.store.reads.physical_at("%RETRY%G", 0, 0)
        again = broker.store.reads.message_at(place)
        assert again.properties["RETRY_TOPIC"] == "Orders"
        assert (again.reconsume_times, again.body) == (0, b"dead")


@pytest.mark.parametrize(
    ("name", "fields", "status", "sentence"),
    [
        ("nothing", {}, 404, "No change is called nothing."),
        ("updateTopic", {"topic": "No"}, 400, "No topic is called No."),
        ("updateTopic", {"topic": 1}, 400, "Topic must be a text of at most 4096"),
        ("updateTopic", {"topic": "Orders", "perm": "7"}, 400, "Perm must be 6"),
        ("updateTopic", {"topic": "Orders", "readQueueNums": 2**53 + 1}, 400,
         "ReadQueueNums must be from 0 to 1024."),
        ("updateTopic", {"topic": "Orders", "readQueueNums": True}, 400,
         "must be a number"),
        ("updateSubGroup", {"group": "No"}, 400, "No group is called No."),
        ("updateSubGroup", {"group": "G", "consumeEnable": "no"}, 400, "true or false"),
        ("resetOffsetByTime", {**RESET, "group": "No"}, 400, "No group is called No."),
        ("resetOffsetByTime", {**RESET, "timestamp": -2}, 400, "must be from -1"),
        ("undo", {"undo": "x"}, 400, "The console no longer remembers this reset"),
        ("resendDeadLetters", {"group": "G"}, 400, "Select dead letters"),
        ("resendDeadLetters", {"group": "G", "offsets": "1,x"}, 400, "Offsets must be"),
        ("resendDeadLetters", {"group": "No"}, 400, "The group No has no dead"),
        ("sendMessage", {"topic": "Orders", "body": "x" * (MAX_BODY + 1)}, 400,
         "Body must"),
    ],
)  # fmt: skip
async def test_wrong_changes(opened, name, fields, status, sentence):
    broker, browser = opened
    answer = await do(browser, name, status, **fields)
    assert sentence in answer["error"]
    assert audited(broker) == []


@pytest.mark.parametrize("body", [b"", b"[]", b'{"a":', b"\xff", b"1"])
async def test_bodies_that_are_no_object(opened, body):
    _, browser = opened
    status, _, answer = await browser.get(
        "/api/do/updateTopic", "POST", body, Content_Type="application/json", X_Rmq="1",
        Origin=f"http://{browser.host}",
    )  # fmt: skip
    assert (status, json.loads(answer)["error"]) == (400, "A JSON object is required.")


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize(
    "changed",
    [
        {"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""},
        {"X_Rmq": "0"}, {"Content_Type": "text/plain"}, {"Host": "evil.example"},
        {"Content_Type": "application/x-www-form-urlencoded"},
        {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"},
    ],
)  # fmt: skip
async def test_no_other_page_changes_anything(opened, name, changed):
    broker, browser = opened
    status, _, _ = await browser.post(f"/api/do/{name}", CHANGES[name], **changed)
    assert status in (403, 421)
    assert audited(broker) == []


@pytest.mark.parametrize("name", CHANGES)
async def test_without_the_key_nothing_is_changed(tmp_path, name):
    async with running_node(tmp_path, ON) as node:
        broker, browser = fill(node), Browser(node.console_port)
        told = await do(browser, name, dry=True, **CHANGES[name])
        assert told["refused"] == "rmq.consoleWrite is false"
        answer = await do(browser, name, 403, **CHANGES[name])
        assert answer["error"] == "Rmq.consoleWrite is false."
        assert (await do(browser, name, 403, **CHANGES[name])) == answer
        assert audited(broker) == []


async def test_an_open_console_never_writes(tmp_path):
    open_to_all = {"rmq.consoleHost": "0.0.0.0"}
    async with running_node(tmp_path, ON | WRITE | open_to_all) as node:
        fill(node)
        browser = Browser(node.console_port)
        _, session = await browser.json("/api/session")
        assert session["write"] is False
        told = await do(browser, "updateTopic", 403, **CHANGES["updateTopic"])
        assert "Without sign-in" in told["error"]


async def test_a_slave_changes_nothing(opened):
    broker, browser = opened
    broker.role.is_master = False
    before = json.dumps(state(broker), default=repr)
    for name, fields in CHANGES.items():
        assert (await do(browser, name, dry=True, **fields))["refused"], name
        status, _, _ = await browser.post(f"/api/do/{name}", fields)
        assert status in (400, 403), name
    assert json.dumps(state(broker), default=repr) == before


async def test_rights_are_those_of_the_same_requests(tmp_path):
    async with running_node(tmp_path, ON | WRITE | AUTH) as node:
        broker, browser = fill(node), Browser(node.console_port)
        for name, fields in CHANGES.items():
            assert (await browser.post(f"/api/do/{name}", fields))[0] == 401
        await make_viewer(node, browser)
        for name, fields in CHANGES.items():
            told = await do(browser, name, dry=True, **fields)
            assert "has no permission" in told["refused"], name
            await do(browser, name, 403, **fields)
        status, answer = await browser.json("/api/messages?topic=Orders")
        assert (status, "has no permission" in answer["error"]) == (403, True)
        for path in ("message?topic=Orders&queue=0&offset=0", "dead?name=G",
                     "body?topic=Orders&queue=0&offset=0"):  # fmt: skip
            assert (await browser.json(f"/api/{path}"))[0] == 403
        before = audited(broker)
        await browser.post("/api/sign-in", {"user": "root", "password": "secret-1"})
        for name, fields in CHANGES.items():
            await do(browser, name, **fields)
        assert len(audited(broker)) == len(before) + len(CHANGES)
        assert list(broker.audit.all())[-1].user == "root"


async def make_viewer(node, browser):
    """Sign in as a user who has nothing but Get on the cluster."""
    cluster = node.broker.context.config.broker_cluster_name
    policy = PolicyInfo(
        policy_type="Custom",
        entries=[
            PolicyEntryInfo(
                resource=f"Cluster:{cluster}", actions=["Get"], decision="Allow"
            )
        ],
    )
    asked = (
        (RequestCode.AUTH_CREATE_USER, {"username": "viewer"},
         UserInfo(username="viewer", password="viewer-1", user_type="Normal")),
        (RequestCode.AUTH_CREATE_ACL, {"subject": "User:viewer"},
         AclInfo(subject="User:viewer", policies=[policy])),
    )  # fmt: skip
    async with RawClient.connect(node.address) as client:
        for code, fields, body in asked:
            command = Command(code, fields, body.encode())
            sign(command, "root", "secret-1")
            answer = await client.call(command)
            assert answer.code == 0, answer.remark
    credentials = {"user": "viewer", "password": "viewer-1"}
    assert (await browser.post("/api/sign-in", credentials))[0] == 200
