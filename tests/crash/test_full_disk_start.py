"""A broker that starts on a full disk: consumers finish, sends get the reason.

After somebody has made room, sends continue without another start.
"""

import os
import signal
from contextlib import suppress

import pytest

from rmq.client import Message, SendRefused
from rmq.client.blocking import Consumer, Producer
from tests.interop.processes import Server, broker_arguments
from tests.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

COUNT = 2_000
SETTINGS = (
    "mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000",
    "maxIndexNum=20000", "maxHashSlotNum=5000", "rmq.tailRingBytes=4194304",
)  # fmt: skip


@pytest.fixture
def small_disk(mounted):
    with mounted("tmpfs", "size=96m") as folder:
        yield folder


def fill(disk):
    """Leave no room; return the file to remove."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4_096))
    assert not os.statvfs(disk).f_bavail
    return ballast


def refuses(producer):
    try:
        producer.send(Message("T", b"more"))
    except SendRefused as error:
        return "% full" in str(error)
    return False


@pytest.mark.parametrize("size", [10, 1_500])
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("ring", ["4194304", "0"])
def test_a_start_on_a_full_disk(small_disk, end, size, ring):
    settings = [*SETTINGS, f"rmq.tailRingBytes={ring}"]
    arguments = broker_arguments(small_disk / "store", *settings)
    server = Server(*arguments)
    with Producer(server.namesrv) as producer:
        for number in range(COUNT):
            producer.enqueue(Message("T", b"%d " % number + bytes(size)))
        producer.flush()
    server.stop() if end == signal.SIGTERM else server.kill()
    ballast = fill(small_disk)
    server = Server(*arguments)
    try:
        with Consumer(server.namesrv, "g", "T", start="first") as consumer:
            seen = {next(consumer).body for _ in range(COUNT)}
        assert len(seen) == COUNT
        with Producer(server.namesrv, timeout_ms=1_000) as producer:
            assert refuses(producer)
            ballast.unlink()
            wait_until(lambda: not refuses(producer), "messages are accepted", 20)
        with Consumer(server.namesrv, "g", "T") as consumer:
            assert next(consumer).body == b"more"
    finally:
        code = server.stop()
    assert code == 0, "".join(server.lines)
    server = Server(*arguments)
    assert server.stop() == 0
    lines = "".join(server.lines)
    assert "damaged" not in lines, lines


def test_a_store_that_was_not_there_before(small_disk):
    """One sentence, or a broker that refuses; no traceback."""
    ballast = fill(small_disk)
    arguments = broker_arguments(small_disk / "store", *SETTINGS)
    text = ""
    try:
        server = Server(*arguments)
    except AssertionError as error:
        text = str(error)
    if text:
        assert "Traceback" not in text
        assert text.count("rmq: ") == 1, text
        return
    with Producer(server.namesrv, timeout_ms=1_000) as producer:
        assert refuses(producer)
        ballast.unlink()
        wait_until(lambda: not refuses(producer), "messages are accepted", 20)
    assert server.stop() == 0
