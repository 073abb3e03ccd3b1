"""Every command that a text of rmq offers works as it stands.

The texts are found in the source: a new one without a value for its parts fails here.
Each is run against a node in the state that the text is about.
"""

import ast
import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from rmq.testing import running_node

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    "rmq/cli/failures.py", "rmq/cli/admin/brokers.py", "rmq/cli/nouns/topic.py",
    "rmq/cli/nouns/user.py", "rmq/cli/doctor/diagnosis.py", "rmq/cli/send/command.py",
    "rmq/cli/doctor/reported_problems.py", "rmq/observe/reasons.py",
    "rmq/observe/findings.py", "rmq/console/changes.py",
]  # fmt: skip
PART = re.compile(r"«(.*?)»")
COMPLETED = {"resendDeadLetters": " --all", "updateBrokerConfig -b": ""}
"""What the code adds to a text later."""

ENDLESS = {"consume"}
SERVERS = {"broker"}


def texts_in(path):
    """Yield the texts of a module that begin with a command; parts are in «»."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value)
                if isinstance(part, ast.Constant)
                else f"«{ast.unparse(part.value)}»"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def offered():
    """Return the commands that texts offer, with their modules."""
    found = {
        (path, text)
        for path in SOURCES
        for text in texts_in(path)
        if re.match(r"rmq [a-z]+( |«|$)", text) and "\n" not in text
    }
    inner = {(path, text) for path, text in found if text.endswith(" ")}
    return sorted(found - inner)


VALUES = {
    "quote(group.name)": "billing", "quote(topic)": "Orders", "more": "16",
    "quote(clients[0])": "{client}", "quote(snapshot.broker)": "broker-test",
    "quote(f'%RETRY%{group.name}')": "'%RETRY%billing'",
    "quote(f'%DLQ%{group}')": "'%DLQ%billing'", "address": "{server}",
    "each.message_id": "{message}", "shlex.quote(topic)": "New",
    "shlex.quote(group)": "billing", "shlex.quote(user)": "shop",
    "shlex.quote(resource)": "Topic:Orders", "subject.action": "Pub",
    "self._broker_option()": "-b {broker}", "quote(name)": "{name}",
    "quote(group)": "billing", "when": "0", "reads": "16", "writes": "16", "perm": "6",
    "first[0]": "0", "first[1]": "0", "queues": "16", "change": "",
    "quote(shown)": "hello", "options": " -k key", "error.name_server": "{server}",
    "admin.name_servers[0]": "{server}",
    "option": " --set rmq.namesrv.listenPort={port}",
    "near[1]": "fileReservedTime", "values": "-k fileReservedTime -v 71",
}  # fmt: skip
"""What each part of a text is in the node of these tests."""


def test_there_are_texts():
    assert len(offered()) > 20
    assert ("rmq/cli/failures.py", "rmq broker«option»") in offered()


@pytest.fixture
def nobody_listens():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


async def client_of(node):
    """Return the client of the group, which is another process, when it is there."""
    while not (found := node.broker.context.consumers.client_ids("billing")):  # noqa: ASYNC110 - as said
        await trio.sleep(0.02)
    return found[0]


@pytest.fixture
async def state(tmp_path, command):
    """A node with a topic, a group with a client, dead letters, and a message."""
    settings = {"enablePropertyFilter": "true", "brokerName": "broker-test"}
    async with running_node(tmp_path / "store", settings) as node:
        where = "-n", node.name_servers[0]
        await command("topic", "create", "Orders", *where)
        words = "user", "create", "shop", "--password-file", "-", *where
        await command(*words, stdin="pw")
        sent = await command("send", "Orders", "hello", "-k", "key", *where)
        process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "rmq", "consume", "Orders", "-g", "billing", *where],
            stdout=subprocess.PIPE,
        )
        try:
            with trio.fail_after(10):
                await process.stdout.receive_some()
                client = await client_of(node)
            await command("topic", "create", "%DLQ%billing", "-q", 1, *where)
            message_id = sent.stdout.split("\t")[3]
            words = "message", "get", "Orders", message_id, "--json", *where
            got = await command(*words)
            yield {
                "server": node.name_servers[0], "broker": node.address,
                "client": client, "message": json.loads(got.stdout)["offsetMsgId"],
            }  # fmt: skip
        finally:
            process.send_signal(signal.SIGINT)
            await process.wait()


async def run_endless(words):
    """Run a command that follows; it must still run after a moment, and end well."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", *words], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip
    with trio.move_on_after(1.0):
        await process.wait()
    assert process.returncode is None, words
    process.send_signal(signal.SIGINT)
    with trio.fail_after(5):
        assert await process.wait() == 0


async def run_server(words, tmp_path):
    """Run a server until it is ready."""
    line = [*words, "--set", "listenPort=0", "--set", f"storePathRootDir={tmp_path}/s"]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", *line], stderr=subprocess.PIPE
    )
    said = b""
    with trio.fail_after(10):
        while b"\nready " not in b"\n" + said:
            part = await process.stderr.receive_some()
            assert part, said
            said += part
        process.send_signal(signal.SIGTERM)
        await process.wait()


@pytest.mark.slow
@pytest.mark.parametrize(("path", "text"), offered())
async def test_it_works_as_it_stands(
    path, text, state, command, tmp_path, nobody_listens
):
    known = state | {"port": nobody_listens, "name": name_for(text)}
    text += next((more for part, more in COMPLETED.items() if part in text), "")
    text = text.replace("-b «address»", f"-b {state['broker']}")
    filled = PART.sub(lambda match: VALUES[match[1]].format(**known), text)
    words = shlex.split(filled, comments=True)[1:]
    if words[0] in SERVERS:
        await run_server(words, tmp_path)
        return
    if "-n" not in words:
        words += ["-n", state["server"]]
    if words[0] in ENDLESS:
        await run_endless(words)
        return
    result = await command(*words)
    assert result.exit_code == 0 or words[0] == "doctor", (words, result.output)


def name_for(text):
    return "billing" if "updateSubGroup" in text else "Orders"


# -- the failures whose texts these are


async def offered_by(command, *words, env=None):
    """Run a command that fails; return the command that it offers."""
    result = await command(*words, env=env)
    assert result.exit_code, result.output
    last = result.stderr.splitlines()[-1]
    assert last.startswith("  -> rmq "), result.stderr
    return shlex.split(last.removeprefix("  -> rmq "))


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as running:
        yield running


async def test_a_topic_that_is_not_there(command, node):
    where = "-n", node.name_servers[0]
    line = await offered_by(command, "topic", "info", "Orders", *where)
    assert line == ["topic", "create", "Orders", *where]
    assert (await command(*line)).exit_code == 0
    assert (await command("topic", "info", "Orders", *where)).exit_code == 0


async def test_a_name_server_that_knows_no_broker(command, tmp_path):
    settings = {"namesrvAddr": "", "rmq.namesrv.listenPort": "0"}
    async with running_node(tmp_path / "store", settings) as node:
        pass
    server = node.name_servers[0]
    port = server.rpartition(":")[2]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", "namesrv", "--set", f"listenPort={port}"],
        stderr=subprocess.PIPE,
    )
    try:
        with trio.fail_after(10):
            said = b""
            while b"ready" not in said:
                said += await process.stderr.receive_some()
        for words in (
            ["send", "Hello", "x"], ["topic", "create", "T"], ["tail"],
            ["top", "--once"], ["admin", "topicRoute", "-t", "T"],
        ):  # fmt: skip
            result = await command(*words, "-n", server)
            assert result.stderr.splitlines() == [
                f"rmq: no broker is registered at {server}",
                "     only a name server runs there; a broker registers after its "
                "start",
                f"  -> rmq broker -n {server}",
            ], words
            assert result.exit_code in (1, 5)
        await run_server(["broker", "-n", server], tmp_path)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


async def test_nobody_listens_at_the_usual_place(command, nobody_listens):
    server = f"127.0.0.1:{nobody_listens}"
    result = await command("topic", "ls", "-n", server)
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        f"rmq: {server} refuses the connection",
        "     no process listens there; -n HOST:PORT names another name server",
        f"  -> rmq broker --set rmq.namesrv.listenPort={nobody_listens}",
    ]


async def test_a_group_without_clients(command, node):
    where = "-n", node.name_servers[0]
    await command("topic", "create", "Orders", *where)
    await command("consume", "Orders", "-g", "billing", "-e", *where)
    words = "admin", "consumerConnection", "-g", "billing", *where
    line = await offered_by(command, *words)
    assert line == ["group", "info", "billing", *where]
    assert (await command(*line)).exit_code == 0


async def test_sql_that_a_broker_does_not_serve(command, node):
    where = "-n", node.name_servers[0]
    await command("send", "Orders", "x", "-p", "color=red", *where)
    words = "consume", "Orders", "--sql", "color = 'red'", "-e", *where
    line = await offered_by(command, *words)
    assert (await command(*line)).exit_code == 0
    result = await command(*words, "-f", "%v")
    assert (result.exit_code, result.stdout) == (0, "x"), result.output


async def test_a_key_that_a_broker_does_not_have(command, node):
    where = "-n", node.name_servers[0]
    words = "admin", "updateBrokerConfig", "-k", "fileReservdTime", "-v", "71", *where
    line = await offered_by(command, *words)
    assert (await command(*line)).exit_code == 0
    result = await command(*words[:3], "fileReservedTime", "-v", "abc", *where)
    assert result.exit_code == 5
    assert "INVALID_PARAMETER" in result.stderr
    assert "black list" not in result.stderr


@pytest.mark.slow
async def test_a_right_that_is_missing(
    command, secured, environment, authority, tmp_path
):
    where = "-n", secured.name_servers[0], "--ca", authority.cert
    password = tmp_path / "shop"
    password.write_text("pw")
    made = await command("user", "create", "shop", "--password-file", password, *where,
                         env=environment)  # fmt: skip
    assert made.exit_code == 0, made.output
    shop = {"RMQ_USER": "shop", "RMQ_PASSWORD_FILE": str(password)}
    for words in (
        ["send", "BenchmarkTest", "x"], ["consume", "BenchmarkTest", "-e"],
        ["topic", "info", "BenchmarkTest"], ["topic", "create", "Own"],
        ["group", "ls"],
    ):  # fmt: skip
        for _ in range(6):  # a command may need several rights, one after another
            result = await command(*words, *where, env=shop)
            if result.exit_code == 0:
                break
            last = result.stderr.splitlines()[-1]
            assert last.startswith("  -> rmq user allow shop "), (words, result.output)
            line = shlex.split(last.removeprefix("  -> rmq "))
            allowed = await command(*line, env=environment)
            assert allowed.exit_code == 0, (line, allowed.output)
        assert result.exit_code == 0, (words, result.output)
