"""`rmq group`: its verbs against a node."""

import pytest


@pytest.fixture
async def billing(rmq):
    """A topic with three messages, of which the group has consumed two."""
    await rmq("topic", "create", "Orders", "-q", 1)
    for number in range(3):
        await rmq("send", "Orders", f"{number}")
    await rmq("consume", "Orders", "-g", "billing", "-c", 2)
    return "billing"


async def test_ls_has_groups_with_settings_only_as_well(rmq, shown, billing):
    await rmq("admin", "updateSubGroup", "-g", "idle")
    rows = {row["group"]: row for row in await shown("group", "ls")}
    assert rows.keys() == {"billing", "idle"}
    assert rows["billing"]["diffTotal"] == 1


async def test_info_works_while_no_client_is_there(shown, billing):
    found = await shown("group", "info", billing)
    assert (found["lag"], found["clients"], found["retryMaxTimes"]) == (1, [], 16)
    assert {row["topic"] for row in found["queues"]} == {"Orders", "%RETRY%billing"}


async def test_info_of_a_group_that_is_not_there(rmq, billing):
    result = await rmq("group", "info", "billin")
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: there is no group billin",
        "     there is 1 group; did you mean billing?",
    ]


@pytest.mark.parametrize(
    ("place", "left"), [("first", ["0", "1", "2"]), ("last", []), ("1h", None)]
)
async def test_reset(rmq, billing, place, left):
    result = await rmq("group", "reset", billing, "Orders", "--to", place)
    assert result.exit_code == 0, result.output
    read = await rmq("consume", "Orders", "-g", billing, "-e", "-f", "%v\n")
    assert read.stdout.split() == (["0", "1", "2"] if left is None else left)


async def test_rm(rmq, node, shown, billing):
    assert (await rmq("group", "rm", "nobody")).exit_code == 5
    assert (await rmq("group", "rm", billing)).exit_code == 0
    assert await shown("group", "ls") == []
    assert node.broker.context.offsets.queues(billing, "Orders") == {}
    assert node.broker.context.topics.get("%RETRY%billing") is None
