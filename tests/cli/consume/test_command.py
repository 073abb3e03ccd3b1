"""`rmq consume` against a node: looking, following, groups, formats, bodies."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from rmq.cli.consume.command import find_unread
from rmq.testing import running_node

PIPED = Path(__file__).parents[1] / "piped"


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as running:
        yield running


@pytest.fixture
def where(node):
    return "-n", node.name_servers[0]


@pytest.fixture
async def topic(node, where, command):
    """A topic of four queues with five messages in two of them."""
    line = "send", *where, "T"
    for number in range(4):
        await command(*line, f"body {number}", "-q", 1, "-k", f"k{number}", "-t", "A")
    await command(*line, "-q", 0, stdin=b"\x1b[2Jgone\xff\xe2\x80\xae")
    await until_known(command, where)
    return "T"


@pytest.fixture
def consume(where, command, topic):
    async def call(*words):
        with trio.fail_after(10):
            return await command("consume", *where, topic, *words)

    return call


async def lines(result):
    assert result.exit_code == 0, result.output
    return [line.split("\t") for line in result.stdout.splitlines()]


async def test_columns_for_a_pipe_are_those_of_the_file(consume):
    result = await consume("--from", "first", "-e", "-q", 1)
    masked = [["TIME", *line[1:]] for line in await lines(result)]
    text = "".join("\t".join(line) + "\n" for line in masked)
    assert text == (PIPED / "consume.txt").read_text()


async def test_the_newest_are_shown_then_it_ends(consume):
    found = await lines(await consume("-e"))
    assert [line[5] for line in found][:4] == [f"body {n}" for n in range(4)]
    assert len(await lines(await consume("-c", 2))) == 2


async def test_where_it_begins(consume):
    for words, count in (
        (["--from", "first"], 5), (["--from", "last"], 0), (["--from", "1h"], 5),
        (["--from", "2020-01-01"], 5), (["-q", 1, "-o", 2], 2),
        (["-q", 1, "-o", 99], 0), (["--from", "now"], 0),
    ):  # fmt: skip
        assert len(await lines(await consume("-e", *words))) == count, words


async def test_only_some(consume):
    words = "--from", "first", "-e"
    assert len(await lines(await consume(*words, "-t", "A || B"))) == 4
    assert await lines(await consume(*words, "-t", "B")) == []
    result = await consume(*words, "--sql", "a > 1")
    assert result.exit_code == 5
    assert "SQL92" in result.stderr


@pytest.mark.parametrize(
    ("expression", "unread"),
    [
        ("color = 'red' AND pri ce > 5", "ce"), ("color = 'red'", ""), ("a > 1 b", "b"),
        ("a BETWEEN 1 AND 2", ""), ("a =", ""), ("TAGS IS NOT NULL", ""),
    ],
)  # fmt: skip
def test_the_end_of_a_filter_that_brokers_ignore(expression, unread):
    assert find_unread(expression) == unread


async def test_a_format(consume):
    form = r"%t|%q:%o|%k|%g|%s|%v|%%\t%x\n"
    result = await consume("--from", "first", "-q", 1, "-c", 1, "-f", form)
    assert result.stdout == "T|1:0|k0|A|6|body 0|%\t%x\n"


async def test_bodies_cannot_drive_a_terminal(consume):
    result = await consume("--from", "first", "-q", 0, "-c", 1)
    assert "\x1b" not in result.stdout
    assert r"\x1b[2Jgone" in result.stdout
    result = await consume("--from", "first", "-q", 0, "-c", 1, "-f", "%v")
    assert "\x1b" not in result.stdout
    result = await consume("--from", "first", "-q", 0, "-c", 1, "--raw")
    assert result.stdout_bytes.startswith(b"\x1b[2Jgone")


async def test_json_of_text_and_of_bytes(consume, command, where):
    await command("send", *where, "T", "-q", 2, stdin=b"\xff\x00")
    result = await consume("--from", "first", "-q", 1, "-c", 1, "--json")
    message = json.loads(result.stdout)
    assert (message["body"], message["keys"], message["queueOffset"]) == (
        "body 0",
        "k0",
        0,
    )
    result = await consume("--from", "first", "-q", 2, "-c", 1, "--json")
    assert json.loads(result.stdout)["bodyBase64"] == "/wA="


async def test_a_group_commits_what_was_written(node, consume):
    first = await consume("-g", "billing", "-c", 3)
    assert len(await lines(first)) == 3
    assert first.stderr.startswith("committed queue 0 up to ")
    second = await consume("-g", "billing", "-e")
    assert len(await lines(second)) == 2
    third = await consume("-g", "billing", "-e")
    assert await lines(third) == []
    assert "queue 1 up to 4" in third.stderr
    offsets = node.broker.context.offsets
    assert offsets.query("billing", "T", 1) == 4
    assert node.broker.context.consumers.group("billing") is None


async def test_what_comes_later_and_ctrl_c(node, where, topic, command, environment):
    line = [
        sys.executable,
        "-m",
        "rmq",
        "consume",
        *where,
        topic,
        "-g",
        "g",
        "-f",
        "%v\n",
    ]
    process = await trio.lowlevel.open_process(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    got = b""
    with trio.fail_after(10):
        while got.count(b"\n") < 5:
            got += await process.stdout.receive_some()
        await command("send", *where, topic, "later")
        while b"later\n" not in got:
            got += await process.stdout.receive_some()
        process.send_signal(signal.SIGINT)
        said = b"".join([part async for part in process.stderr])
        assert await process.wait() == 0
    assert said.startswith(b"committed queue 0 up to ")
    assert b"Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize("group", [[], ["-g", "G"]])
async def test_a_broker_that_stops_and_comes_back(
    tmp_path, command, environment, group
):
    """It may come back with another address; the name server keeps its own."""
    folder = tmp_path / "again"
    line = [sys.executable, "-m", "rmq", "consume", "T", "-f", "%v\n", *group]
    async with running_node(folder, {"brokerName": "b"}) as node:
        where = "-n", node.name_servers[0]
        await command("send", *where, "T", "before")
        await until_known(command, where)
        process = await trio.lowlevel.open_process(
            [*line, *where], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert await shown(process.stdout, b"before\n") == b"before\n"
    said = await shown(process.stderr, b"is back\n")
    port = where[1].rpartition(":")[2]
    settings = {"brokerName": "b", "rmq.namesrv.listenPort": port}
    async with running_node(folder, settings):
        said += await shown(process.stderr, b"connected again\n")
        await command("send", *where, "T", "after")
        assert await shown(process.stdout, b"after\n") == b"after\n"
        process.send_signal(signal.SIGINT)
        said += b"".join([part async for part in process.stderr])
        assert await process.wait() == 0, said
    lines = said.decode().splitlines()
    assert lines[0].endswith("; waiting until the broker is back")
    assert lines[1] == "rmq: connected again"
    assert [each[:15] for each in lines[2:]] == ["committed queue"] * bool(group)


@pytest.mark.slow
async def test_a_broker_that_stops_while_the_end_is_wanted(
    tmp_path, command, environment
):
    """Following is for ever, so waiting is too; what was counted on an end gets one."""
    async with running_node(tmp_path / "short") as node:
        where = "-n", node.name_servers[0]
        await command("send", *where, "T", "x")
        await until_known(command, where)
    result = await command("consume", "T", *where, "-e")
    assert result.exit_code == 3
    assert "refuses the connection" in result.stderr


async def shown(stream, end):
    """Read until the bytes end so."""
    got = b""
    with trio.fail_after(20):
        while not got.endswith(end):
            part = await stream.receive_some()
            assert part, got
            got += part
    return got


async def until_known(command, where):
    route = "admin", "topicRoute", *where, "-t", "T"
    with trio.fail_after(10):
        while (await command(*route)).exit_code:  # noqa: ASYNC110 - over the wire
            await trio.sleep(0.02)


async def test_a_closed_pipe_ends_it_quietly(where, topic, environment):
    words = " ".join([sys.executable, "-m", "rmq", "consume", *where, topic])
    with trio.fail_after(10):
        done = await trio.run_process(
            ["sh", "-c", f"{words} --from first -e | head -1"],
            capture_stdout=True, capture_stderr=True,
        )  # fmt: skip
    assert done.stdout.count(b"\n") == 1
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["-o", 1], 2, "-o needs -q"),
        (["-g", "G", "-q", 1], 2, "a group assigns the queues itself"),
        (["-t", "A", "--sql", "a=1"], 2, "not both"),
        (["--from", "tomorrow"], 2, "tomorrow is not a time"),
        (["-q", 99], 1, "no such readable queue"),
    ],
)
async def test_wrong_words(consume, words, code, said):
    result = await consume(*words)
    assert result.exit_code == code
    assert said in result.stderr


async def test_a_topic_that_is_not_there(command, where, topic):
    result = await command("consume", *where, "TT", "-e")
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: there is no topic TT",
        "     there is 1 topic",
        f"  -> rmq topic create TT {' '.join(where)}",
    ]


async def test_a_topic_that_comes_later(command, where, environment):
    """It begins at the first message: the sender may be faster than the reader."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", "consume", *where, "Later", "-c2", "-f", "%v\n"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said = await shown(process.stderr, b"waiting for topic Later\n")
    assert said == b"rmq: there is no topic Later; waiting for topic Later\n"
    await command("send", *where, "Later", "first")
    await command("send", *where, "Later", "second")
    with trio.fail_after(10):
        got = b"".join([part async for part in process.stdout])
        assert await process.wait() == 0
    assert sorted(got.split()) == [b"first", b"second"]


async def test_a_topic_that_is_nearly_right(command, where, environment):
    await command("topic", "create", "Orders", *where)
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", "consume", *where, "Order"],
        stderr=subprocess.PIPE,
    )
    said = await shown(process.stderr, b"\n")
    process.send_signal(signal.SIGINT)
    with trio.fail_after(5):
        assert await process.wait() == 0
    assert said == (
        b"rmq: there is no topic Order, did you mean Orders?; waiting for topic Order\n"
    )


async def test_a_name_that_no_topic_can_have(command, where):
    result = await command("consume", *where, "a b")
    assert result.exit_code == 1
    assert "a b is not a valid topic" in result.stderr


@pytest.mark.slow
async def test_with_tls_and_a_user(command, secured, environment, authority):
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    await command("send", *where, "BenchmarkTest", "secret", env=environment)
    words = "BenchmarkTest", "-g", "G", "-c", 1, "-f", "%v"
    result = await command("consume", *where, *words, env=environment)
    assert (result.exit_code, result.stdout) == (0, "secret"), result.output


@pytest.mark.slow
@pytest.mark.parametrize("group", [[], ["-g", "G"]])
async def test_who_may_not_read_is_told(
    command, secured, environment, authority, tmp_path, group
):
    password = tmp_path / "shop"
    password.write_text("shop-secret")
    tls = "--ca", authority.cert
    where = "-n", secured.name_servers[0], *tls
    made = await command(
        "admin", "createUser", "-b", secured.address, *tls,
        "-u", "shop", "--password-file", password, env=environment,
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    shop = {"RMQ_USER": "shop", "RMQ_PASSWORD_FILE": str(password)}
    with trio.fail_after(10):
        words = "BenchmarkTest", "-c", 1, *group
        result = await command("consume", *where, *words, env=shop)
    assert result.exit_code == 5
    assert "rmq: user shop has no permission for this on" in result.stderr


async def test_nobody_notices_one_that_looks(node, consume):
    await consume("-c", 5)
    context = node.broker.context
    assert context.consumers.group("rmq-consume") is None
    assert context.topics.get("%RETRY%rmq-consume") is None
