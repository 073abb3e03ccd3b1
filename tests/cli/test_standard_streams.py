"""Commands with streams that are missing, full, or not in UTF-8."""

import itertools
import os
import subprocess
import sys

import pytest

from rmq.cli import COMMANDS
from rmq.testing import BrokerThread

FULL = "rmq: the output cannot be written: no space left on device\n"
CLOSED = "rmq: the output cannot be written: it is closed\n"
numbers = itertools.count()
TEXT = "smile \U0001f600 \u4e2d\u6587"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerThread(tmp_path_factory.mktemp("broker")) as running:
        running.create_topic("T", 1)
        for number in range(3):
            running.send("T", TEXT.encode(), keys=f"k{number}")
        yield running


def rmq(*words, redirection="", data=b"", **variables):
    """Run a command in a shell; the code and what it printed."""
    line = [sys.executable, "-m", "rmq", *words]
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirection}', "sh", *line],
        input=None if "<" in redirection else data,
        capture_output=True, check=False, timeout=20, env={**os.environ, **variables},
    )  # fmt: skip
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def lines_of(broker):
    where = ["-n", broker.name_server]
    return {
        "send": ["send", "T", "x", *where],
        "send lines": ["send", "T", "--lines", *where],
        "consume": ["consume", "T", "-e", *where],
        "consume json": ["consume", "T", "-e", "--json", *where],
        "consume raw": ["consume", "T", "-e", "--raw", *where],
        "consume group": ["consume", "T", "-e", "-g", "full", *where],
        "topicList": ["admin", "topicList", *where],
        "topicList json": ["admin", "topicList", "--json", *where],
        "tail": ["tail", "-c", "1", *where],
        "top": ["top", "--once", *where],
        "doctor": ["doctor", *where],
    }


NAMES = list(lines_of(type("", (), {"name_server": ""})))
WRITING = [name for name in NAMES if name != "tail"]


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(
    ("redirection", "sentence"), [("> /dev/full", FULL), (">&-", CLOSED)]
)
def test_output_that_cannot_be_written_is_one_sentence(
    broker, name, redirection, sentence
):
    done = rmq(*lines_of(broker)[name], redirection=redirection, data=b"one\ntwo\n")
    errors = done.stderr.decode()
    assert errors.endswith(sentence)
    assert done.returncode == 4
    if name == "send":
        assert errors == "sent 1, refused 0, without an answer 0\n" + sentence
    if name == "consume group":
        assert errors == "committed queue 0 up to 0\n" + sentence


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("redirection", ["<&-", "2>&-", "2> /dev/full", "<&- 2>&-"])
def test_other_streams_may_be_missing(broker, name, redirection):
    words = lines_of(broker)[name]
    if name == "consume group":
        words[words.index("full")] = f"g{next(numbers)}"
    done = rmq(*words, redirection=redirection)
    assert done.returncode in (0, 1)
    if name.startswith("consume"):
        assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"sql"}))
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk"])
def test_every_help_is_shown_in_every_encoding(name, encoding):
    done = rmq(name, "--help", PYTHONIOENCODING=encoding)
    assert done.returncode == 0
    assert b"Usage: rmq" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("latin-1", rb"smile \U0001f600 \u4e2d\u6587"),
        ("gbk", b"smile \\U0001f600 " + "\u4e2d\u6587".encode("gbk")),
        ("utf-8", TEXT.encode()),
    ],
)
def test_what_an_encoding_does_not_have_is_escaped(broker, encoding, shown):
    words = *lines_of(broker)["consume"], "--from", "first"
    done = rmq(*words, PYTHONIOENCODING=encoding)
    assert (done.returncode, shown in done.stdout) == (0, True)
    words = *lines_of(broker)["consume raw"], "--from", "first"
    raw = rmq(*words, PYTHONIOENCODING=encoding)
    assert TEXT.encode() + b"\n" in raw.stdout


@pytest.mark.slow
@pytest.mark.parametrize("language", ["C", "POSIX", "C.UTF-8"])
def test_a_plain_locale_shows_all_texts(broker, language):
    words = *lines_of(broker)["consume"], "--from", "first"
    done = rmq(*words, LC_ALL=language, LANG=language)
    assert (done.returncode, TEXT.encode() in done.stdout) == (0, True)


BAD = os.fsdecode(b"\xff")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (["admin", "queryMsgByKey", "-t", "T", "-k", BAD], "'-k' / '--msgKey'"),
        (["admin", "topicStatus", "-t", BAD], "'-t' / '--topic'"),
        (["consume", BAD, "-e"], "'TOPIC'"),
        (["consume", "T", "-g", BAD], "'-g' / '--group'"),
        (["send", BAD, "x"], "'TOPIC'"),
        (["send", "T", "x", "-k", BAD], "'-k' / '--key'"),
        (["send", "T", "x", "-k", "good", "-k", BAD], "'-k' / '--key'"),
        (["send", "T", "x", "-p", f"a={BAD}"], "'-p' / '--property'"),
        (["send", "T", "x", "-t", BAD], "'-t' / '--tag'"),
        (["tail", "-k", BAD], "'-k' / '--key'"),
        (["top", "-n", BAD], "'-n' / '--namesrvAddr'"),
        (["broker", "--set", f"brokerName={BAD}"], "'--set'"),
    ],
)
def test_an_argument_that_is_no_utf_8_is_named(words, parameter):
    done = rmq(*words)
    assert done.returncode == 2
    text = f"Error: Invalid value for {parameter}: "
    assert text in done.stderr.decode()
    assert r"\xff' is no UTF-8." in done.stderr.decode()


@pytest.mark.slow
def test_bytes_of_a_body_are_sent_as_they_are(broker):
    broker.create_topic("Bytes", 1)
    done = rmq("send", "Bytes", f"a{BAD}", "-n", broker.name_server)
    assert done.returncode == 0
    assert [each.body for each in broker.messages("Bytes")] == [b"a\xff"]


@pytest.mark.slow
def test_names_of_files_may_have_any_bytes(tmp_path, broker):
    path = os.path.join(os.fsencode(tmp_path), b"body\xff")
    with open(path, "wb") as file:
        file.write(b"of a file")
    words = ["send", "T", "-n", broker.name_server, "--file", os.fsdecode(path)]
    assert rmq(*words).returncode == 0
    done = rmq(*words[:-1], os.fsdecode(path) + "-not")
    assert done.returncode == 1
    assert b"cannot read" in done.stderr


def test_a_full_disk_is_one_sentence_of_any_command():
    done = rmq("--help", redirection="> /dev/full")
    assert (done.returncode, done.stderr.decode()) == (4, FULL)
