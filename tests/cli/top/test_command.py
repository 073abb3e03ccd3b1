"""`rmq top` in a pipe and on a terminal, against a running broker."""

import json
import os
import pty
import re
import signal
import sys
import termios
from subprocess import Popen

import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.testing import running_node


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as node:
        context = node.broker.context
        context.topics.ensure("Orders", queues=1, perm=6)
        for _ in range(3):
            context.publish("Orders", b"x", queue_id=0)
        context.offsets.commit("c", "billing", "Orders", 0, 1)
        context.monitor.sample()
        yield node


async def run(*arguments):
    return await trio.to_thread.run_sync(
        lambda: CliRunner().invoke(main, ["top", *arguments])
    )


async def test_one_table_in_a_pipe(node):
    result = await run("--once", "-b", node.address)
    head, row = result.output.splitlines()
    assert head == "group\tbehind\twaitsMs\toutPerSecond\tclients\twhy"
    assert re.fullmatch(r"billing\t2\t\d+\t0.00\t0\t", row)


async def test_one_table_on_a_terminal(node, monkeypatch):
    monkeypatch.setattr("rmq.cli.top.command.is_terminal", lambda: True)
    result = await run("--once", "-b", node.address)
    head, row = result.output.splitlines()
    assert head.split() == ["GROUP", "BEHIND", "WAITS", "OUT", "PER", "SECOND",
                            "CLIENTS", "WHY"]  # fmt: skip
    assert row.startswith("billing  ")


async def test_one_document(node):
    result = await run("--once", "--json", "-n", node.name_servers[0])
    (state,) = json.loads(result.output)
    assert [row["name"] for row in state["groups"]] == ["billing"]


async def test_nobody_answers():
    result = await run("--once", "-b", "127.0.0.1:1")
    assert result.exit_code == 3


def start(command, terminal, **more):
    return Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, **more)


def top_command(node):
    return [sys.executable, "-m", "rmq", "top", "-d", "0.2", "-b", node.address]


@pytest.mark.slow
async def test_a_terminal_is_mended(node):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    process = start(top_command(node), theirs)
    try:
        text = b""
        with trio.fail_after(20):
            while b"billing" not in text:
                text += await trio.to_thread.run_sync(os.read, ours, 65_536)
        assert b"\x1b[?1049h" in text
        os.write(ours, b"/ord\n q")
        with trio.fail_after(20):
            while b"\x1b[?1049l" not in text:
                text += await trio.to_thread.run_sync(os.read, ours, 65_536)
            assert await trio.to_thread.run_sync(process.wait) == 0
    finally:
        process.kill()
        process.wait()
    assert text.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(theirs) == before
    assert re.search(rb"Orders", text)
    os.close(ours)
    os.close(theirs)


async def seen(terminal, wanted, text=b""):
    """Read a terminal until it has shown something."""
    with trio.fail_after(20):
        while wanted not in text:
            text += await trio.to_thread.run_sync(os.read, terminal, 65_536)
    return text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_ends_it_and_mends_the_terminal(node, number):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    process = start(top_command(node), theirs)
    try:
        text = await seen(ours, b"billing")
        process.send_signal(number)
        text = await seen(ours, b"\x1b[?1049l", text)
        with trio.fail_after(20):
            await trio.to_thread.run_sync(process.wait)
    finally:
        process.kill()
        process.wait()
    assert text.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.slow
async def test_a_stop_and_a_continuation(node):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    before = termios.tcgetattr(theirs)
    process = start(top_command(node), theirs, process_group=0)
    try:
        await seen(ours, b"billing")
        process.send_signal(signal.SIGTSTP)
        await seen(ours, b"\x1b[?1049l")
        with trio.fail_after(20):
            while termios.tcgetattr(theirs) != before:  # noqa: ASYNC110 - a test
                await trio.sleep(0.01)
        process.send_signal(signal.SIGCONT)
        await seen(ours, b"billing")
        os.write(ours, b"q")
        await seen(ours, b"\x1b[?1049l")
        with trio.fail_after(20):
            assert await trio.to_thread.run_sync(process.wait) == 0
    finally:
        process.kill()
        process.wait()
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)


@pytest.mark.slow
async def test_one_that_is_killed_leaves_nothing_at_the_broker(node):
    connections = node.broker.context.monitor.connection_count
    quiet = connections()
    for _ in range(2):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        process = start(top_command(node), theirs)
        await seen(ours, b"billing")
        assert connections() > quiet
        process.kill()
        await trio.to_thread.run_sync(process.wait)
        with trio.fail_after(20):
            while connections() > quiet:  # noqa: ASYNC110 - a test
                await trio.sleep(0.01)
        os.close(ours)
        os.close(theirs)
