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


async def test_create_and_set_change_what_they_name_only(rmq, node):
    words = "group", "create", "billing", "--retries", 3
    assert (await rmq(*words)).exit_code == 0
    again = await rmq(*words)
    assert (again.exit_code, again.stderr.splitlines()[0]) == (
        1, "rmq: group billing exists on broker-test",
    )  # fmt: skip

    def settings():
        found = node.broker.context.groups.get("billing")
        return (found.retry_max_times, found.consume_message_orderly,
                found.consume_enable)  # fmt: skip

    assert settings() == (3, False, True)
    for words, wanted in (
        (["--no-consume"], (3, False, False)), (["--ordered"], (3, True, False)),
        (["--retries", 5], (5, True, False)),
        (["--consume", "--unordered"], (5, False, True)),
    ):  # fmt: skip
        result = await rmq("group", "set", "billing", *words)
        assert result.exit_code == 0, result.output
        assert settings() == wanted, words


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["billing"], 2, "name a setting: --retries, --ordered, --consume"),
        (["other", "--retries", 1], 5, "other"),
        (["billing", "--retries", "x"], 2, "--retries"),
    ],
)
async def test_what_set_refuses(rmq, words, code, said):
    await rmq("group", "create", "billing")
    result = await rmq("group", "set", *words)
    assert result.exit_code == code, result.output
    assert said in result.stderr
