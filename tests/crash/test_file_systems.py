"""Stores in memory and on a disk that is slow: what users see, and what a kill leaves.

A file system that refuses direct writes (ramfs) is written through the page cache, and
one line says so.  A disk that is slower than the senders slows these down, and nobody
else; after `osPageCacheBusyTimeOutMills` without progress they are refused.
"""

import re
import threading
import time
from pathlib import Path

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from tests.crash.laboratory import Load, broker, check
from tests.interop import wire

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

MIB = 1 << 20
SLOW_MS = 1_200
STUCK_MS = 6_000
REFUSES_DIRECT = "refuses direct writes"
GROWTH_LIMIT_MIB = 32
"""Of the broker's own memory, while a slow disk makes many senders wait."""


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_store_in_memory_serves_and_survives_a_kill(
    tmp_path, mounted, kind, flush, ring
):
    load = Load()
    with mounted(kind) as disk:
        for _ in range(2):
            with broker(disk / "store", flush, ring=ring) as (child, address):
                load.run(address, 0.4, child.kill)
                child.wait(20)
                lines = [line for line in child.stderr if REFUSES_DIRECT in line]
            assert not load.refused
            assert len(load.acknowledged) > 100
            has_ring = ring == str(MIB) or (ring != "0" and flush == "SYNC_FLUSH")
            assert len(lines) <= int(has_ring), lines
            if kind == "ramfs":
                assert len(lines) == int(has_ring)
        check(disk / "store", load, tmp_path / "copy")


class Bystander:
    """Asks the broker for its state again and again; keeps the longest answer."""

    def __init__(self, address):
        self._address = "{}:{}".format(*address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.slowest_s = 0.0
        self.answers = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._is_over.set()
        self._thread.join()

    def _ask(self):
        while not self._is_over.wait(0.01):
            began = time.monotonic()
            wire.call(self._address, RequestCode.GET_BROKER_RUNTIME_INFO)
            self.slowest_s = max(self.slowest_s, time.monotonic() - began)
            self.answers += 1


def own_mib(child):
    text = Path(f"/proc/{child.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text)[1]) / 1024


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_slow_disk_slows_its_senders_only(tmp_path, fault, flush):
    """Each write takes longer than a second: others are answered meanwhile."""
    control, environment = fault
    root, load = tmp_path / "store", Load()
    settings = {"ring": MIB, "osPageCacheBusyTimeOutMills": 60_000}
    with broker(root, flush, environment=environment, **settings) as (child, address):
        load.run(address, 0.3)
        fast, memory = len(load.acknowledged), own_mib(child)
        control.write_text(f"pwritev 0 {SLOW_MS}")
        with Bystander(address) as bystander:
            load.run(address, 4)
        assert not load.refused
        assert len(load.acknowledged) > fast, "slow, but it goes on"
        assert bystander.answers > 10
        assert bystander.slowest_s < SLOW_MS / 1_000
        assert own_mib(child) - memory < GROWTH_LIMIT_MIB
        control.unlink()
        load.run(address, 0.3)
        assert not load.refused
    check(root, load, tmp_path / "copy")


def test_a_disk_that_stands_still_is_the_cause_of_refusals(tmp_path, fault):
    """Until it goes on; nothing that was acknowledged is lost."""
    control, environment = fault
    root, load = tmp_path / "store", Load()
    with broker(root, environment=environment, ring=MIB) as (_, address):
        load.run(address, 0.3)
        assert not load.refused
        control.write_text(f"pwritev 0 {STUCK_MS}")
        load.run_until(address, lambda: load.refused)
        assert {answer.code for answer in load.refused} == {ResponseCode.SYSTEM_BUSY}
        assert "slower than the senders" in load.refused[0].remark
        control.unlink()
        load.run_until_stored(address, 100)
    check(root, load, tmp_path / "copy")


def test_a_durable_send_that_waits_too_long_is_told_so(tmp_path, fault):
    """Its message is stored all the same, once the disk goes on."""
    control, environment = fault
    root, load = tmp_path / "store", Load()
    settings = {"environment": environment, "syncFlushTimeout": 500}
    with broker(root, "SYNC_FLUSH", **settings) as (_, address):
        load.run(address, 0.3)
        assert not load.refused
        control.write_text(f"pwritev 0 {STUCK_MS}")
        load.run(address, 2)
        codes = {answer.code for answer in load.refused}
        assert codes == {ResponseCode.FLUSH_DISK_TIMEOUT}
        control.unlink()
        load.run_until_stored(address, 100)
    check(root, load, tmp_path / "copy")
