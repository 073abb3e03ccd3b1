"""`rmq tail` in a pipe and on a terminal, against running brokers."""

import json
import os
import pty
import re
import sys
import termios
from subprocess import Popen
from types import SimpleNamespace

import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.tail import command as tail
from rmq.cli.tail.command import message_line
from rmq.testing import running_node

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202eevil\x9b31m\r\n"


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as node:
        node.broker.context.topics.ensure("Orders", queues=1, perm=6)
        node.broker.context.topics.ensure("Payments", queues=1, perm=6)
        yield node


async def run(node, send, *arguments):
    """Run the command; `send` is called again and again until it ends."""
    result = None

    async def follow():
        nonlocal result
        result = await trio.to_thread.run_sync(
            lambda: CliRunner().invoke(
                main, ["tail", "-n", node.name_servers[0], *arguments]
            )
        )

    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            while result is None:
                send(node.broker.context)
                await trio.sleep(0.05)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def both(broker):
    broker.publish("Orders", b"hello", keys="k-1", tags="paid")
    broker.publish("Payments", b"other")


async def test_lines_in_a_pipe(node):
    lines = await run(node, both, "-t", "Ord*", "-c", "2")
    assert len(lines) == 2
    for line in lines:
        time, *cells = line.split("\t")
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", time)
        assert [cells[0], *cells[3:]] == ["Orders", "k-1", "paid", "5", "hello"]


async def test_objects(node):
    (line,) = await run(node, both, "--json", "-c", "1", "--grep", "other")
    found = json.loads(line)
    assert (found["kind"], found["topic"], found["text"]) == (
        "message", "Payments", "other",
    )  # fmt: skip


def change(broker):
    from rmq.remoting.changes import Change

    broker.publish("Orders", b"x")
    broker.audit.add(Change(1_800_000_000_000, HOSTILE, "s", "DO", HOSTILE, HOSTILE))


async def test_only_changes_and_no_text_drives_the_terminal(node):
    for options in ((), ("--json",)):
        (line,) = await run(node, change, "--only", "admin", "-c", "1", *options)
        assert "admin" in line
        assert line.replace("\t", "").isprintable()


async def test_a_hostile_message_in_a_pipe(node):
    def send(broker):
        properties = {"KEYS": HOSTILE, "TAGS": HOSTILE}
        broker.publish("Orders", HOSTILE.encode(), properties=properties)

    for options in ((), ("--json",)):
        (line,) = await run(node, send, "-c", "1", *options)
        assert line.replace("\t", "").isprintable()


def test_a_hostile_message_on_a_terminal():
    row = {
        "stored": 0, "topic": HOSTILE, "queue": 1, "key": HOSTILE, "tag": HOSTILE,
        "size": 9, "text": HOSTILE,
    }  # fmt: skip
    assert message_line(row).isprintable()


async def test_brokers_that_do_not_know_the_request_are_pulled(node, monkeypatch):
    """A broker answers a code that it does not know as those of Java answer 20004."""
    monkeypatch.setattr(tail, "OwnRequestCode", SimpleNamespace(FOLLOW_LOG=20_999))
    (line,) = await run(node, both, "-t", "Orders", "-c", "1")
    assert line.split("\t")[4:] == ["k-1", "paid", "5", "hello"]
    result = await trio.to_thread.run_sync(
        lambda: CliRunner().invoke(main, ["tail", "-n", node.name_servers[0]])
    )
    assert result.exit_code == 1
    assert "name one topic" in result.output


async def test_nobody_answers():
    result = await trio.to_thread.run_sync(
        lambda: CliRunner().invoke(main, ["tail", "-b", "127.0.0.1:1"])
    )
    assert result.exit_code == 3


def start(command, terminal):
    environ = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    return Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environ)


@pytest.mark.slow
async def test_a_terminal_of_twenty_columns(node):
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 20))
    command = [
        sys.executable, "-m", "rmq", "tail", "-c", "3", "-n", node.name_servers[0],
    ]  # fmt: skip
    process = start(command, theirs)
    text = b""
    try:
        with trio.fail_after(20):
            while process.poll() is None:
                properties = {"KEYS": HOSTILE, "TAGS": HOSTILE}
                body = HOSTILE.encode() * 99
                node.broker.context.publish("Orders", body, properties=properties)
                await trio.sleep(0.05)
        text = os.read(ours, 65_536)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, text
    for line in text.decode().split("\r\n"):
        assert len(line) <= 20
        assert line.isprintable()
