"""Brokers without a free descriptor go on, and start again."""

import signal
import socket
import threading
import time

import pytest

from tests.crash.laboratory import (
    Load,
    broker,
    check,
)

LARGE = {"mappedFileSizeCommitLog": 8 << 20}
"""A file of the log takes a descriptor for good: one a second, not a hundred."""

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


def stop(child, root):
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 0
    assert "Traceback" not in child.stderr.read()
    assert not (root / "abort").exists()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_silent_connections_do_not_end_a_broker(tmp_path, flush):
    """They take what there is; who was there before sends on, and the log rolls."""
    root, load = tmp_path / "store", Load()
    with broker(root, flush, descriptors=128, **LARGE) as (child, address):
        sender = threading.Thread(target=load.run, args=(address, 1.5))
        sender.start()
        time.sleep(0.3)
        silent = [socket.create_connection(address) for _ in range(200)]
        time.sleep(0.2)
        before = len(load.acknowledged)
        sender.join(20)
        assert child.poll() is None
        assert len(load.acknowledged) > before > 0
        for connection in silent:
            connection.close()
        load.run(address, 0.2)
        assert not load.refused
        stop(child, root)
    check(root, load, tmp_path / "copy")


def test_more_topics_than_descriptors(tmp_path):
    root, load = tmp_path / "store", Load(topics=1_000, run_length=1)
    for _ in range(2):
        with broker(root, descriptors=256, **LARGE) as (child, address):
            load.run(address, 2)
            assert not load.refused
            stop(child, root)
    assert len({sent.place.topic for sent in load.acknowledged.values()}) == 1_000
    with broker(root, descriptors=256, **LARGE) as (child, address):
        load.run(address, 0.5)
    check(root, load, tmp_path / "copy")
