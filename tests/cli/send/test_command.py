"""`rmq send` against a node: bodies, properties, delays, refusals."""

import json
import re
import signal
import subprocess
import sys

import pytest
import trio

from rmq.testing import running_node

LINE = re.compile(r"T\t\d\t0\t[0-9A-F]{32}\t\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\n")


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as running:
        yield running


@pytest.fixture
def send(node, command):
    async def call(*words, stdin=None):
        return await command("send", "-n", node.name_servers[0], *words, stdin=stdin)

    return call


async def test_a_message_from_the_command_line(node, send):
    result = await send("T", "größe")
    assert result.exit_code == 0
    assert LINE.fullmatch(result.stdout)
    assert result.stderr == ""
    result = await send("T", "a", "-q", 1, "-J")
    found = json.loads(result.stdout)
    assert found.keys() == {
        "topic", "brokerName", "queueId", "queueOffset", "msgId", "time",
    }  # fmt: skip
    assert (found["topic"], found["queueId"]) == ("T", 1)


@pytest.mark.parametrize("how", ["file", "-", "stdin"])
async def test_a_body_of_any_bytes(node, send, tmp_path, how):
    body = bytes(range(256))
    path = tmp_path / "body"
    path.write_bytes(body)
    words = {"file": ["--file", path], "-": ["--file", "-"], "stdin": []}[how]
    result = await send("T", "-J", *words, stdin=body)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    context = node.broker.context
    assert context.store.reads.max_offset("T", found["queueId"]) == 1
    assert context.store.log.end_offset > 256


async def test_each_line_is_a_message(node, send):
    result = await send("T", "--lines", "-k", "k", stdin=b"a\nb\r\n\nc\nd")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 4
    ends = [
        node.broker.context.store.reads.max_offset("T", queue) for queue in range(4)
    ]
    assert ends == [1, 1, 1, 1]


async def test_a_rate_is_kept(send):
    with trio.fail_after(5):
        began = trio.current_time()
        result = await send("T", "--lines", "--rate", 100, stdin=b"x\n" * 11)
    assert result.exit_code == 0
    assert trio.current_time() - began >= 0.1


async def test_ten_megabytes_are_refused_in_a_sentence(send):
    result = await send("T", stdin=b"x" * 10_000_000)
    assert result.exit_code == 5
    assert "answered 13 MESSAGE_ILLEGAL" in result.stderr
    assert "4194304" in result.stderr
    result = await send("T", stdin=b"x" * 17_000_000)
    assert result.exit_code == 1
    assert re.match(r"rmq: a request of \d+ bytes is larger than", result.stderr)


async def test_a_delay_that_this_broker_does_not_have(send):
    assert (await send("T", "x", "--delay", "10s")).exit_code == 0
    result = await send("T", "x", "--delay", "11s")
    if result.exit_code:
        assert "timed delivery" in result.stderr
        assert "-> --delay with 1s 5s" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a b", "x"], 1, "a b is not a valid topic"),
        (["T", "x", "--delay", "soon"], 2, "soon is not a duration"),
        (["T", "x", "-p", "color"], 2, "color: write NAME=VALUE"),
        (["T", "x", "-p", "color="], 2, "color=: brokers drop a property without"),
        (["T", "x", "-p", "DELAY=3"], 2, "the property DELAY is reserved"),
        (["T", "x", "--file", "y"], 2, "not both"),
        (["T", "--file", "/nowhere"], 1, "cannot read /nowhere: No such file"),
        (["T", "x", "-q", "99"], 1, "T has no writable queue 99"),
    ],
)
async def test_wrong_words(send, words, code, said):
    result = await send(*words)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    "data", [b"a\rb\nc\n", b"a\x0bb\x0cc\x1cd\n", b"a\r\nb\r\n\r\n\nc", b"\xc2\x85\n"]
)
async def test_a_file_and_stdin_are_split_alike(send, tmp_path, data):
    (tmp_path / "lines").write_bytes(data)
    file = await send("T", "--lines", "--file", str(tmp_path / "lines"))
    stdin = await send("T", "--lines", stdin=data)
    counts = [len(each.stdout.splitlines()) for each in (file, stdin)]
    assert (
        counts == [len([each for each in data.split(b"\n") if each.strip(b"\r")])] * 2
    )


async def test_a_topic_that_brokers_do_not_make(command, tmp_path):
    settings = {"autoCreateTopicEnable": "false"}
    async with running_node(tmp_path / "store", settings) as node:
        where = "-n", node.name_servers[0]
        result = await command("send", *where, "Orders", "x")
    assert result.exit_code == 5
    assert result.stderr.splitlines() == [
        "rmq: there is no topic Orders",
        "     there are no topics",
        f"  -> rmq topic create Orders {' '.join(where)}",
    ]


async def test_a_broker_without_write_permission_gets_nothing(node, command, send):
    where = "-n", node.name_servers[0]
    assert (await send("T", "x")).exit_code == 0
    await command("admin", "wipeWritePerm", *where, "-b", "broker-test")
    result = await send("BenchmarkTest", "x")
    assert result.exit_code == 1
    assert "BenchmarkTest has no writable queue" in result.stderr


async def test_with_tls_and_a_user(command, secured, environment, authority):
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    sent = await command("send", *where, "T", "x", env=environment)
    assert sent.exit_code == 0, sent.output
    result = await command("send", *where, "T", "x")
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: this broker requires a user\n")


async def test_ctrl_c_says_what_was_sent(node, environment):
    line = [sys.executable, "-m", "rmq", "send", "-n", node.name_servers[0], "T",
            "--lines"]  # fmt: skip
    process = await trio.lowlevel.open_process(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await process.stdin.send_all(b"one\n" * 100)
    await process.stdout.receive_some(10)
    process.send_signal(signal.SIGINT)
    said = b""
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:

            async def drain():
                async for _ in process.stdout:
                    pass

            nursery.start_soon(drain)
            async for part in process.stderr:
                said += part
            assert await process.wait() == 130
            nursery.cancel_scope.cancel()
    assert re.match(rb"sent [\d,]+, refused 0, without an answer 0\n", said), said


async def test_lines_are_sent_while_the_next_are_waited_for(node, environment):
    line = [sys.executable, "-m", "rmq", "send", "-n", node.name_servers[0], "T",
            "--lines", "-k", "a b", "-k", "c"]  # fmt: skip
    process = await trio.lowlevel.open_process(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with trio.fail_after(10):
        for number in range(3):
            await process.stdin.send_all(b"%d\n" % number)
            assert LINE.fullmatch((await process.stdout.receive_some()).decode())
        await process.stdin.aclose()
        assert await process.wait() == 0


async def test_a_broker_that_goes_away_ends_it(tmp_path, environment):
    async with running_node(tmp_path / "short") as node:
        line = [sys.executable, "-m", "rmq", "send", "-n", node.name_servers[0], "T",
                "--lines"]  # fmt: skip
        process = await trio.lowlevel.open_process(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with trio.fail_after(10):
            await process.stdin.send_all(b"one\n")
            await process.stdout.receive_some()
    await process.stdin.send_all(b"two\n")
    with trio.fail_after(20):
        said = b"".join([part async for part in process.stderr])
        assert await process.wait() == 3, said
    assert said.startswith(b"rmq: ")
    assert b"Traceback" not in said
