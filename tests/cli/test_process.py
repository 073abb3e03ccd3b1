"""A broker as users start it: ready line, signals, marker of an unclean stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode

pytestmark = pytest.mark.slow

SEND = {
    "a": "PG", "b": "New", "c": "TBW102", "d": "3", "e": "2", "f": "0", "g": "0",
    "h": "0", "i": "", "j": "0", "k": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "CID_RMQ_SYS_TRANS", "topic": "New", "queueId": "2",
    "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0",
    "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
}  # fmt: skip
READY = re.compile(
    r"ready broker=b address=127\.0\.0\.1:\d+ namesrv=127\.0\.0\.1:\d+\n"
)


@contextmanager
def process(folder, *more, arguments=()):
    settings = (
        "brokerName=b",
        "listenPort=0",
        "rmq.namesrv.listenPort=0",
        f"storePathRootDir={folder}",
        "mappedFileSizeCommitLog=1048576",
        *more,
    )
    settings = [part for setting in settings for part in ("--set", setting)]
    environment = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
    with subprocess.Popen(
        [sys.executable, "-m", "rmq", "broker", *arguments, *settings],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        try:
            yield child
        finally:
            child.kill()


def until_ready(child):
    lines = []
    for line in child.stderr:
        lines.append(line)
        if line.startswith("ready "):
            return lines
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(tmp_path, number):
    with process(tmp_path) as child:
        lines = until_ready(child)
        assert READY.fullmatch(lines[-1])
        assert any("the broker listens on 127.0.0.1 only" in line for line in lines)
        assert (tmp_path / "abort").exists()
        child.send_signal(number)
        assert child.wait(20) == 0
    assert not (tmp_path / "abort").exists()


def test_a_kill_leaves_the_marker_and_the_next_start_mends(tmp_path):
    with process(tmp_path) as child:
        until_ready(child)
        child.kill()
        child.wait(20)
    assert (tmp_path / "abort").exists()
    with process(tmp_path) as child:
        until_ready(child)
        child.terminate()
        assert child.wait(20) == 0
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_topic_that_an_answered_send_made_survives_a_kill(tmp_path, flush):
    """It was in the file 0.2 s later only: pulls from it were answered 17."""
    with process(tmp_path, f"flushDiskType={flush}") as child:
        sent = ask(until_ready(child)[-1], Command(310, SEND, b"kept"))
        assert sent.code == 0
        time.sleep(0.1)
        child.kill()
        child.wait(20)
    with process(tmp_path) as child:
        ready = until_ready(child)[-1]
        topic = json.loads(ask(ready, Command(351, {"topic": "New"})).body)
        assert (topic["readQueueNums"], topic["writeQueueNums"]) == (3, 3)
        assert b"kept" in ask(ready, Command(11, PULL)).body
        child.terminate()
        assert child.wait(20) == 0


def ask(ready, request):
    """Send a request to the broker with this ready line, and return the answer."""
    port = int(re.search(r"address=127\.0\.0\.1:(\d+)", ready)[1])
    with socket.create_connection(("127.0.0.1", port), 5) as peer:
        peer.sendall(encode(request))
        decoder = FrameDecoder()
        while True:
            data = peer.recv(65_536)
            assert data, "the broker closed the connection"
            if answers := decoder.feed(data):
                return answers[0]


def test_two_brokers_cannot_share_a_directory(tmp_path):
    with process(tmp_path) as first:
        until_ready(first)
        with process(tmp_path) as second:
            text = second.stderr.read()
            assert second.wait(20) == 1
        assert "Traceback" not in text


def test_a_second_signal_stops_at_once(tmp_path):
    """The first one waits for a name server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        settings = (f"namesrvAddr={address}", "registerBrokerTimeoutMills=1000")
        with process(tmp_path, *settings) as child:
            until_ready(child)
            child.terminate()
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(0.5)
            child.terminate()
            assert child.wait(1) == 1
            assert "stopped at once" in child.stderr.read()
    assert (tmp_path / "abort").exists()
    with process(tmp_path) as child:
        until_ready(child)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("listenPort=port", "listenPort"),
        ("flushDiskTyp=SYNC_FLUSH", "flushDiskType"),
        ("brokerId=-x", "brokerId"),
    ],
)
def test_a_bad_setting_is_one_sentence(tmp_path, setting, said):
    with process(tmp_path, setting) as child:
        if said == "flushDiskType":
            assert any(said in line for line in until_ready(child))
            return
        text = child.stderr.read()
        assert child.wait(20) != 0
    assert said in text
    assert "Traceback" not in text


def test_a_failed_load_is_one_sentence_and_no_start(tmp_path):
    table = tmp_path / "config" / "topics.json.bak"
    table.parent.mkdir()
    table.write_text("{")
    with process(tmp_path) as child:
        text = child.stderr.read()
        assert child.wait(20) == 1
    assert str(table) in text
    assert "repair the newest of these files, or remove them all" in text
    assert "Traceback" not in text
    assert "ready" not in text
