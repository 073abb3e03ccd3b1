"""`rmq message`: its verbs against a node."""

import json

import pytest


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
    assert (await rmq("message", "get", "Orders", "nonsense")).exit_code == 2


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
