"""Every command with streams that are full, closed, or not in UTF-8."""

import json
import os
import subprocess
import sys

import pytest

from rmq.cli import COMMANDS
from rmq.cli.admin.catalogue import ENTRIES, UNSERVED
from rmq.testing import BrokerThread
from tests.cli.admin.test_every_command import LINES
from tests.interop.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]

OUTPUT_FAILED = 4
SHOWN_AS = {"ascii": "utf-8"}
"""click does not believe that a terminal has ASCII only."""

TEXT = "smile \U0001f600 \u4e2d\u6587 \xe9"


class Driver:
    """A process that runs commands in forks."""

    def __init__(self):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cli.fork_driver"],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(
        self, words, *, stdin="file", stdout="file", stderr="file", encoding="utf-8",
        data=b"", program="rmq",
    ):  # fmt: skip
        job = {
            "words": words, "streams": [stdin, stdout, stderr], "encoding": encoding,
            "data": data.decode("latin-1"), "program": program,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        code, output, errors = json.loads(self._process.stdout.readline())
        what = (words, job["streams"], encoding, code, output, errors)
        assert "Traceback" not in errors + output, what
        assert "Exception ignored" not in errors, what
        assert code in range(10), what
        return code, output.encode("latin-1"), errors.encode("latin-1")

    def close(self):
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture(scope="module")
def driver():
    found = Driver()
    yield found
    found.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broker")
    settings = {"brokerClusterName": "DefaultCluster", "defaultTopicQueueNums": "2"}
    with BrokerThread(folder, settings) as running:
        running.folder = folder
        for topic in ("Orders", "T"):
            running.create_topic(topic, 2)
            for number in range(3):
                running.send(topic, TEXT.encode(), keys=f"key{number} \u043a\u043b")
        yield running


def lines_of(broker, folder):
    """Every command with arguments; those of rmq admin in an order that works."""
    topics, groups, conf = (folder / n for n in ("topics", "groups", "broker.conf"))
    topics.write_text('[{"topicName": "A", "readQueueNums": 1, "writeQueueNums": 1}]')
    groups.write_text('[{"groupName": "GA"}]')
    conf.write_text("brokerName=b\nbrokerIp1=10.0.0.1\n")
    (record, *_) = broker.messages("Orders")
    known = {
        "b": broker.address, "topics": topics, "groups": groups, "folder": folder,
        "id": record.offset_msg_id, "unique": record.properties["UNIQ_KEY"],
    }  # fmt: skip
    where = ["-n", broker.name_server]
    for name in ENTRIES.keys() - UNSERVED.keys():
        assert name in LINES, name
    for name, text in LINES.items():
        yield ["admin", name, *where, *text.format(**known).split()]
        yield ["admin", name, *where, *text.format(**known).split(), "--json"]
    store = str(broker.folder)
    yield from (
        ["send", "T", "x", *where],
        ["send", "T", "x", "-k", "\u043a\u043b\u044e\u0447", *where],
        ["send", "T", "--lines", *where],
        ["consume", "T", "-e", *where],
        ["consume", "T", "-e", "--json", *where],
        ["consume", "T", "-e", "--raw", *where],
        ["consume", "T", "-e", "-f", "%v %k\n", *where],
        ["top", "--once", *where],
        ["top", "--once", "--json", *where],
        ["doctor", *where],
        ["doctor", "--json", *where],
        ["bench", "--messages", "5", *where],
        ["config", "check", str(conf)],
        ["config", "print", "-c", str(conf)],
        ["config", "document"],
        ["store", "inspect", store],
        ["store", "verify", store],
        ["sql", "SELECT 1", "--name-server", broker.name_server],
        ["topic", "ls", *where],
        ["topic", "ls", "--json", *where],
        ["topic", "info", "T", *where],
        ["topic", "create", "New", *where],
        ["topic", "set", "New", "--queues", "2", *where],
        ["topic", "clear", "New", "--yes", *where],
        ["topic", "rm", "New", "--yes", *where],
        ["group", "create", "Made", *where],
        ["group", "set", "Made", "--retries", "3", *where],
        ["group", "ls", *where],
        ["group", "info", "G", *where],
        ["group", "info", "G", "--json", *where],
        ["group", "reset", "G", "T", "--to", "first", *where],
        ["group", "rm", "G", "--yes", *where],
        ["message", "get", "Orders", known["id"], *where],
        ["message", "find", "T", "--key", "key1", *where],
        ["message", "find", "T", "--key", "key1", "--json", *where],
        ["message", "track", "T", known["unique"], *where],
        ["user", "ls", *where],
        ["plugins", "ls"],
        ["context", "ls"],
        ["request", "T", "x", "--timeout", "1", *where],
        ["broker", "-p"],
        ["broker", "-m", "-c", str(conf)],
    )


@pytest.fixture(scope="module")
def lines(broker, tmp_path_factory):
    return list(lines_of(broker, tmp_path_factory.mktemp("files")))


def test_outputs_that_cannot_be_written(driver, lines):
    """A command whose output is lost never ends with 0, and says so in a sentence."""
    for words in lines:
        code, output, _ = driver.run(words, data=b"one\ntwo\n")
        for stdout in ("full", "closed"):
            now, _, errors = driver.run(words, stdout=stdout, data=b"one\ntwo\n")
            if output and code == 0:
                assert now != 0, (words, stdout)
            if now == OUTPUT_FAILED:
                assert b"the output cannot be written" in errors, words


def test_inputs_and_messages_that_are_missing(driver, lines):
    for words in lines:
        driver.run(words, stdin="closed")
        driver.run(words, stdin="closed", stderr="closed")
        driver.run(words, stderr="full")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk", "utf-8"])
def test_every_encoding(driver, lines, encoding):
    for words in lines:
        code, output, _ = driver.run(words, encoding=encoding, data=b"one\ntwo\n")
        if "--raw" not in words and code == 0:
            output.decode(SHOWN_AS.get(encoding, encoding))


def test_every_help(driver):
    for name in COMMANDS:
        for encoding in ("ascii", "latin-1"):
            code, output, _ = driver.run([name, "--help"], encoding=encoding)
            assert (code, output[:9]) == (0, b"Usage: rm"), name
        for stdout in ("full", "closed"):
            assert driver.run([name, "--help"], stdout=stdout)[0] == OUTPUT_FAILED
    for name in ENTRIES:
        code, output, _ = driver.run(["admin", name, "--help"], encoding="ascii")
        assert (code, output[:9]) == (0, b"Usage: rm"), name
    for name in ("export", "follow", "status"):
        code, *_ = driver.run([name, "--help"], encoding="ascii", program="rmq-spark")
        assert code == 0, name


BAD = os.fsdecode(b"\xff")


def test_every_text_that_is_no_utf_8(driver, lines):
    """Each argument after the command, one after the other."""
    for words in lines:
        first = 2 if words[0] in ("admin", "store", "config") else 1
        for at in range(first, len(words)):
            if words[at].startswith("-") or words[at - 1] in ("-n", "--name-server"):
                continue
            code, _, errors = driver.run([*words[:at], BAD, *words[at + 1 :]])
            is_file = words[at].startswith("/")
            is_body = words[:2] == ["send", "T"] and at == 2
            if not is_file and not is_body:
                assert code == 2, (words, at, errors)


BODY = bytes(range(256)).replace(b"\n", b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_bytes_in_are_bytes_out(driver, broker, tmp_path, encoding):
    """All bytes, by a file, by lines and by an argument, in every encoding."""
    where = ["-n", broker.name_server]
    topic = f"bytes-{encoding}"
    broker.create_topic(topic, 1)
    path = tmp_path / "body"
    path.write_bytes(BODY)
    text = os.fsdecode(BODY.replace(b"\0", b"").lstrip(b"-"))
    for words, data in (
        (["send", topic, "--file", str(path)], b""),
        (["send", topic], BODY),
        (["send", topic, "--lines"], BODY + b"\n"),
        (["send", topic, "--", text], b""),
    ):
        words = [*words[:2], *where, *words[2:]]
        code, _, errors = driver.run(words, data=data, encoding=encoding)
        assert code == 0, errors
    wanted = [BODY, BODY, BODY, os.fsencode(text)]
    assert [each.body for each in broker.messages(topic)] == wanted
    words = ["consume", topic, "-e", "--raw", "--from", "first", *where]
    _, output, _ = driver.run(words, encoding=encoding)
    assert output == b"".join(each + b"\n" for each in wanted)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_keys_are_found_and_shown(driver, broker, encoding):
    where = ["-n", broker.name_server]
    topic, key = f"keys-{encoding}", "\u043a\u043b\u044e\u0447-\xe9"
    broker.create_topic(topic, 1)
    words = ["send", topic, "x", "-k", key, "-t", key, "-p", f"a={key}", *where]
    assert driver.run(words, encoding=encoding)[0] == 0
    (record,) = broker.messages(topic)
    assert record.properties["KEYS"] == record.properties["a"] == key
    words = ["admin", "queryMsgByKey", "-t", topic, "-k", key, *where]
    code, output, _ = driver.run(words, encoding=encoding)
    assert code == 0
    assert output.strip()
    words = ["consume", topic, "-e", "-f", "%k %t\n", "--from", "first", *where]
    _, output, _ = driver.run(words, encoding=encoding)
    shown_as = SHOWN_AS.get(encoding, encoding)
    assert key.encode(shown_as, "backslashreplace") in output
