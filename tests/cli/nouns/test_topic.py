"""`rmq topic`: its verbs against a node."""

import sys

import pytest
import trio

from rmq.testing import running_node


async def test_a_new_topic_can_be_used_at_once(rmq, node):
    assert (await rmq("topic", "create", "Orders", "-q", 3)).exit_code == 0
    sent = await rmq("send", "Orders", "hi")
    assert sent.exit_code == 0
    read = await rmq("consume", "Orders", "-c", 1, "-f", "%v")
    assert read.stdout == "hi"
    config = node.broker.context.topics.get("Orders")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)


async def test_kinds_and_permissions(rmq, node, shown):
    await rmq("topic", "create", "Steps", "--kind", "fifo", "--perm", "r")
    found = await shown("topic", "info", "Steps")
    assert (found["kind"], found["perm"], found["queues"]) == ("fifo", "r", 8)


async def test_a_topic_that_exists_stays_as_it_is(rmq, node):
    await rmq("topic", "create", "Orders", "-q", 3)
    again = await rmq("topic", "create", "Orders", "-q", 5)
    assert again.exit_code == 1
    assert "topic Orders exists on broker-test" in again.stderr
    assert node.broker.context.topics.get("Orders").read_queue_nums == 3


async def test_lists_hide_what_is_not_of_users(rmq, shown):
    await rmq("topic", "create", "Orders")
    await rmq("topic", "create", "order-paid")
    assert [row["topic"] for row in await shown("topic", "ls")] == [
        "Orders", "order-paid",
    ]  # fmt: skip
    found = await shown("topic", "ls", "order-*")
    assert [row["topic"] for row in found] == ["order-paid"]
    every = {row["topic"] for row in await shown("topic", "ls", "--all")}
    assert {"Orders", "TBW102", "broker-test"} <= every


async def test_info_has_the_lag_of_each_group(rmq, shown):
    await rmq("topic", "create", "Orders", "-q", 1)
    for number in range(3):
        await rmq("send", "Orders", f"{number}")
    await rmq("consume", "Orders", "-g", "billing", "-c", 2)
    found = await shown("topic", "info", "Orders")
    assert (found["messages"], found["brokers"]) == (3, ["broker-test"])
    assert found["groups"] == ["billing (lag 1)"]
    assert [row["maxOffset"] for row in found["offsets"]] == [3]


async def test_set_changes_what_it_names_only(rmq, node, shown):
    words = "-q", 2, "--kind", "delay", "-a", "rmq.once.window.ms=1000", "--perm", "r"
    assert (await rmq("topic", "create", "Orders", *words)).exit_code == 0

    def settings():
        found = node.broker.context.topics.get("Orders")
        return (found.read_queue_nums, found.write_queue_nums, found.perm,
                dict(found.attributes))  # fmt: skip

    kept = {"message.type": "DELAY", "rmq.once.window.ms": "1000"}
    assert settings() == (2, 2, 4, kept)
    for words, wanted in (
        (["--queues", 5], (5, 5, 4, kept)),
        (["--perm", "rw"], (5, 5, 6, kept)),
        (["--kind", "fifo"], (5, 5, 6, kept | {"message.type": "FIFO"})),
        (["-a", "rmq.once.window.ms="], (5, 5, 6, {"message.type": "FIFO"})),
    ):  # fmt: skip
        result = await rmq("topic", "set", "Orders", *words)
        assert result.exit_code == 0, result.output
        assert settings() == wanted, words


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["Orders"], 2, "name a setting: --queues, --kind, --perm, --attribute"),
        (["Orders", "-a", "x"], 2, "x: write NAME=VALUE"),
        (["Orders", "-a", "x=1,y=2"], 2, "x=1,y=2: write NAME=VALUE"),
        (["Orders", "-a", "no.such=1"], 5, "no.such"),
        (["Other", "-q", 1], 5, "there is no topic Other"),
    ],
)
async def test_what_set_refuses(rmq, words, code, said):
    await rmq("topic", "create", "Orders")
    result = await rmq("topic", "set", *words)
    assert result.exit_code == code, result.output
    assert said in result.stderr


async def test_clear_keeps_the_settings_and_begins_again(rmq, node, shown):
    await rmq("topic", "create", "Orders", "-q", 2, "--kind", "fifo")
    await rmq("send", "Orders", "old", "-q", 0)
    await rmq("consume", "Orders", "-g", "billing", "-e")
    cleared = await rmq("topic", "clear", "Orders")
    assert cleared.exit_code == 0, cleared.output
    found = await shown("topic", "info", "Orders")
    assert (found["messages"], found["queues"], found["kind"]) == (0, 2, "fifo")
    await rmq("send", "Orders", "new")
    read = await rmq("consume", "Orders", "-g", "billing", "-e", "-f", "%v\n")
    assert read.stdout == "new\n"


async def test_rm_deletes_all_or_nothing(rmq, shown):
    await rmq("topic", "create", "A")
    await rmq("topic", "create", "B")
    refused = await rmq("topic", "rm", "A", "C")
    assert refused.exit_code == 5
    assert refused.stderr.startswith("rmq: there is no topic C\n")
    assert len(await shown("topic", "ls")) == 2
    assert (await rmq("topic", "rm", "A", "B")).exit_code == 0
    assert await shown("topic", "ls") == []


async def test_what_cannot_be_cleared(rmq):
    await rmq("topic", "create", "Orders")
    await rmq("consume", "Orders", "-g", "billing", "-e")
    result = await rmq("topic", "clear", "%RETRY%billing")
    assert result.exit_code == 2
    assert "rmq group rm" in result.stderr


async def test_with_several_clusters_one_must_be_chosen(command, tmp_path):
    async with running_node(tmp_path / "a") as first:
        servers = first.name_servers[0]
        other = {
            "namesrvAddr": servers, "brokerClusterName": "other", "brokerName": "b",
        }  # fmt: skip
        async with running_node(tmp_path / "b", other):
            where = "-n", servers
            with trio.fail_after(10):
                while True:
                    found = await command("admin", "clusterList", *where)
                    if "other" in found.stdout:
                        break
                    await trio.sleep(0.05)
            result = await command("topic", "create", "T", *where)
            assert result.exit_code == 1
            assert result.stderr.splitlines() == [
                "rmq: several clusters are registered: DefaultCluster, other",
                "     the command needs exactly one",
                "  -> -c DefaultCluster",
            ]
            made = await command("topic", "create", "T", *where, "-c", "other")
            assert made.exit_code == 0, made.output


@pytest.mark.slow
async def test_each_of_the_first_three_commands_is_quick(node, environment):
    """Processor time, because the machine of a test is seldom idle."""
    where = "-n", node.name_servers[0]
    for words in (
        ["topic", "create", "Fast"], ["send", "Fast", "hi"], ["consume", "Fast", "-c1"],
    ):  # fmt: skip
        line = [sys.executable, "-m", "rmq", *words, *where]
        code = (
            "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True,"
            " stdout=subprocess.DEVNULL); u = resource.getrusage("
            "resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime)"
        )
        best = 9.0
        for _ in range(3):
            done = await trio.run_process(
                [sys.executable, "-c", code, *line], capture_stdout=True
            )
            best = min(best, float(done.stdout))
            if words[0] == "topic":
                break  # it would be refused the second time
        assert best <= 0.35, (words, best)
