"""`rmq admin auditLog`: who changed what, from where, old and new."""

import json

import msgspec
import pytest
import trio

from rmq.broker.tables import audit as module
from rmq.broker.tables.audit import KEPT_MS, MAX_CHANGES, AuditTable
from rmq.config.table_file import seal_of, seal_text
from rmq.protocol import fastjson
from rmq.remoting.changes import Change
from rmq.testing import ManualClock, running_node


async def changes(command, environment, *where):
    result = await command("admin", "auditLog", *where, "--json", env=environment)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_each_kind_of_change(
    command, secured, environment, authority, caplog, tmp_path
):
    caplog.set_level("INFO")
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    broker = "-b", secured.address
    secret = tmp_path / "secret"
    secret.write_text("wonderland\n")
    for words in (
        ["updateTopic", *broker, "-t", "T", "-r", 4, "-w", 4],
        ["updateTopic", *broker, "-t", "T", "-r", 8, "-w", 4],
        ["updateSubGroup", *broker, "-g", "G"],
        ["updateBrokerConfig", *broker, "-k", "fileReservedTime", "-v", 71],
        ["createUser", *broker, "-u", "alice", "--password-file", str(secret)],
        ["createAcl", *broker, "-s", "User:alice", "-r", "Topic:T", "-a", "Pub",
         "-d", "Allow"],
        ["deleteTopic", "-c", "DefaultCluster", "-t", "T"],
        ["updateKvConfig", "-s", "N", "-k", "k", "-v", "v"],
    ):  # fmt: skip
        name, *rest = words
        result = await command("admin", name, *where, *rest, env=environment)
        assert result.exit_code == 0, result.output
    secret.write_text("wonderland")
    alice = {"RMQ_USER": "alice", "RMQ_PASSWORD_FILE": str(secret)}
    listed = await command("admin", "listUser", *where, *broker, env=alice)
    assert "alice has no permission" in listed.stderr, "her password is known"
    found = await changes(command, environment, *where)
    told = [(each["action"], each["subject"], each["change"]) for each in found]
    assert [each["user"] for each in found] == ["root"] * len(found)
    assert all(each["source"].startswith("127.0.0.1:") for each in found)
    assert told[0][:2] == ("UPDATE_AND_CREATE_TOPIC", "topic T")
    assert "readQueueNums 4" in told[0][2]
    assert told[1] == (
        "UPDATE_AND_CREATE_TOPIC", "topic T", "readQueueNums 4 -> 8",
    )  # fmt: skip
    assert told[2][1] == "group G"
    assert told[3] == (
        "UPDATE_BROKER_CONFIG",
        "configuration",
        "fileReservedTime 72 -> 71",
    )
    assert told[4][1:] == ("user alice", "created")
    assert told[5][1:] == ("rules of User:alice", "set: Allow Pub on Topic:T")
    assert told[6] == ("DELETE_TOPIC_IN_BROKER", "topic T", "deleted")
    assert "wonderland" not in json.dumps(found)
    assert "root from 127.0.0.1" in caplog.text
    assert "PUT_KV_CONFIG namespace=N key=k value=v" in caplog.text


async def test_it_outlives_a_start(command, environment, tmp_path):
    async with running_node(tmp_path / "store") as node:
        words = "-b", node.address, "-t", "T"
        result = await command("admin", "updateTopic", *words, env={})
        assert result.exit_code == 0, result.output
    async with running_node(tmp_path / "store") as node:
        (found,) = await changes(command, {}, "-b", node.address)
    assert (found["user"], found["subject"]) == ("", "topic T")


@pytest.fixture
def table(tmp_path):
    clock = ManualClock(0)
    return AuditTable(tmp_path, clock), clock


def test_a_week_and_ten_thousand_are_kept(table):
    audit, clock = table
    for number in range(MAX_CHANGES + 5):
        audit.add(Change(number, "", "a:1", "X", str(number), ""))
    kept = list(audit.all())
    assert (len(kept), kept[0].subject) == (MAX_CHANGES, "5")
    clock.ms = KEPT_MS + 100
    assert next(audit.all()).time_ms == 100


@pytest.mark.parametrize("count", [0, 1, 3, 200])
def test_the_file_is_what_a_whole_document_would_be(table, tmp_path, count):
    audit, clock = table
    for number in range(count):
        audit.add(Change(number, "u", "a:1", "X", f'sub"ject {number}', "größe\n"))
    changes = [msgspec.structs.asdict(each) for each in audit.all()]
    text = fastjson.dumps_pretty({"changes": changes})
    assert b"".join(audit.snapshot()) == text
    audit.write(audit.snapshot())
    again = AuditTable(tmp_path, clock)
    again.load()
    again.add(Change(count, "", "a:1", "Y", "new", ""))
    trio.run(again.save)
    changes = [msgspec.structs.asdict(each) for each in again.all()]
    wanted = fastjson.dumps_pretty({"changes": changes})
    saved = (tmp_path / "rmqAudit.json").read_bytes()
    assert saved == seal_text(wanted, *seal_of(saved))


def test_the_file_has_what_is_kept_after_any_ends(table, tmp_path, monkeypatch):
    """Changes that leave the table before they were encoded, and after."""
    monkeypatch.setattr(module, "MAX_CHANGES", 7)
    before, clock = table
    for number in range(5):
        before.add(Change(number, "", "a:1", "X", str(number), ""))
    before.write(before.snapshot())
    audit = AuditTable(tmp_path, clock)
    audit.load()
    for number in range(5, 30):
        clock.ms = KEPT_MS + number - 3
        audit.add(Change(number, "", "a:1", "X", str(number), ""))
        if number % 4 == 0:
            clock.ms += 2
        changes = [msgspec.structs.asdict(each) for each in audit.all()]
        if number % 3 == 0:
            text = fastjson.dumps_pretty({"changes": changes})
            assert b"".join(audit.snapshot()) == text
