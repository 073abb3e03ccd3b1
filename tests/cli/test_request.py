"""`rmq request` and `rmq reply`: a question and its answer."""

import json
import signal
import subprocess
import sys

import pytest
import trio

from rmq.testing import running_node


@pytest.fixture
async def where(tmp_path, command):
    async with running_node(tmp_path / "store") as node:
        where = "-n", node.name_servers[0]
        await command("topic", "create", "Prices", *where)
        yield where


class Replier:
    """A process of `rmq reply`."""

    def __init__(self, process):
        self.process = process

    async def end(self):
        self.process.send_signal(signal.SIGINT)
        with trio.fail_after(5):
            said = b"".join([part async for part in self.process.stderr])
            shown = b"".join([part async for part in self.process.stdout])
            return await self.process.wait(), shown.decode(), said.decode()


async def start(where, *words):
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", "reply", "Prices", *words, *where],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    return Replier(process)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["3.20"], "3.20"),
        (["--echo"], "apple"),
        (["--exec", "tr a-z A-Z"], "APPLE"),
    ],
)
async def test_a_reply(where, command, environment, words, answer):
    replier = await start(where, *words)
    result = await command("request", "Prices", "apple", *where, "--timeout", 10)
    assert (result.exit_code, result.stdout) == (0, f"{answer}\n"), result.output
    again = await command("request", "Prices", "apple", "--json", *where)
    assert again.exit_code == 0, (again.output, again.exception)
    assert json.loads(again.stdout)["body"] == answer
    code, shown, said = await replier.end()
    assert (code, said) == (0, "")
    assert shown.splitlines()[0] == f"apple -> {answer}"


async def test_keys_and_size_are_as_for_send(where, command, tmp_path):
    replier = await start(where, "--echo", "-c", "1")
    question = tmp_path / "question"
    question.write_bytes(b"x" * ((4 << 20) + 1))
    words = "request", "Prices", "--file", question, "-k", "o-1 o-2", "-k", "o-3"
    result = await command(*words, *where, "--timeout", 10)
    assert "13 MESSAGE_ILLEGAL" in result.stderr  # the broker's limit
    question.write_bytes(b"apple")
    result = await command(*words, *where, "--timeout", 10)
    assert (result.exit_code, result.stdout) == (0, "apple\n"), result.output
    for key in ("o-1", "o-2", "o-3"):
        found = await command("message", "find", "Prices", "--key", key, *where)
        assert "apple" in found.stdout
    await replier.process.wait()


async def test_nobody_replies(where, command):
    result = await command("request", "Prices", "apple", *where, "--timeout", 0.3)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "rmq: no consumer of topic Prices replied within 0.3 s",
        "     the request is stored, and a consumer may answer it later",
        "  -> start a consumer that replies, or use a longer --timeout",
    ]


async def test_a_plain_message_gets_no_reply(where, command, environment):
    replier = await start(where, "3.20", "-c", "1")
    await command("send", "Prices", "no question", *where)
    result = await command("request", "Prices", "apple", *where, "--timeout", 10)
    assert result.exit_code == 0, result.output
    with trio.fail_after(5):
        assert await replier.process.wait() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reply", "Prices"], "give BODY, --echo or --exec"),
        (["reply", "Prices", "x", "--echo"], "give BODY, --echo or --exec"),
        (["request", "Prices", "x", "--file", "y"], "give BODY or --file, not both"),
    ],
)
async def test_wrong_words(command, words, said):
    result = await command(*words)
    assert result.exit_code == 2
    assert said in result.stderr
