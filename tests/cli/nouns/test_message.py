"""`rmq message`: its verbs against a node."""

import json

import pytest

from rmq.client.admin import AdminClient


@pytest.fixture
async def sent(rmq):
    """The message ids of three messages in one queue."""
    await rmq("topic", "create", "Orders", "-q", 1)
    ids = []
    for number in range(3):
        words = "-k", f"k{number}", "-t", f"tag{number % 2}", "--json"
        result = await rmq("send", "Orders", f"body {number}", *words)
        ids.append(json.loads(result.stdout)["msgId"])
    return ids


async def test_get_by_place_and_by_id(rmq, shown, sent):
    for which in ("0:1", "broker-test:0:1", sent[1]):
        found = await shown("message", "get", "Orders", which)
        assert (found["body"], found["keys"]) == ("body 1", "k1")
    assert (await shown("message", "get", "Orders", "0:2", "--hex"))["body"] == (
        b"body 2".hex()
    )


async def test_get_what_is_not_there(rmq, sent):
    result = await rmq("message", "get", "Orders", "0:7")
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: queue 0 of Orders has no message at offset 7",
        "     it has 0 to 2",
    ]


@pytest.mark.parametrize(
    "key", ["nonsense", "7F0000010A1B4E25154F0A1B2C3D0007", "", "7F0000010000000" * 4]
)
async def test_get_a_key_that_no_message_has(rmq, sent, key):
    """It is no offset id either: the bytes of the port are the client's process."""
    result = await rmq("message", "get", "Orders", key)
    assert result.exit_code == 5
    assert result.stderr.splitlines()[0] == (
        f"rmq: no message of Orders has the id {key}"
    )
    for words in (["-i", key], ["-i", key, "-t", "Orders"]):
        result = await rmq("admin", "queryMsgById", *words)
        assert result.exit_code in (1, 5)
        assert key in result.stderr.splitlines()[0]
        assert result.stderr.splitlines()[1].startswith("     ")


async def test_get_from_a_topic_without_a_broker(rmq, sent, monkeypatch):
    find_route = AdminClient.route

    def route(admin, topic):
        """As a name server answers whose brokers of this topic are gone."""
        found = dict(find_route(admin, topic))
        found["brokerDatas"] = [{"brokerName": "b", "brokerAddrs": {}}]
        return found

    monkeypatch.setattr(AdminClient, "route", route)
    result = await rmq("message", "get", "Orders", "0:1")
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: no broker has topic Orders now\n")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--key", "k1"], ["body 1"]),
        (["--key", "k9"], []),
        (["--tag", "tag0"], ["body 0", "body 2"]),
        (["--grep", "y 2"], ["body 2"]),
        (["--from", "1h"], ["body 0", "body 1", "body 2"]),
        (["--to", "1000"], []),
        (["-l", 1], ["body 0"]),
    ],
)
async def test_find(shown, sent, words, found):
    rows = await shown("message", "find", "Orders", *words)
    assert [row["body"] for row in rows] == found


async def test_track(rmq, shown, sent):
    await rmq("consume", "Orders", "-g", "billing", "-c", 1)
    for message_id, state in ((sent[0], "CONSUMED"), (sent[2], "NOT_CONSUME_YET")):
        found = await shown("message", "track", "Orders", message_id)
        assert found["msgId"] == message_id
        assert [(row["group"], row["state"]) for row in found["events"]] == [
            ("billing", state)
        ]
