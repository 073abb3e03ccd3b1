"""Disks that fail under a running broker: it acknowledges nothing that it loses."""

import errno
import os
import time
from pathlib import Path

import pytest

from rmq.protocol.codes import ResponseCode
from tests.crash.laboratory import Load, broker, check

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("call", "ring"), [("fdatasync", 0), ("pwrite", 0), ("pwritev", 1 << 20)]
)
def test_an_error_of_the_disk_stops_writing_for_good(tmp_path, fault, call, ring):
    """Under SYNC_FLUSH; also when the disk has become well again."""
    control, environment = fault
    root, load = tmp_path / "store", Load()
    with broker(root, "SYNC_FLUSH", environment=environment, ring=ring) as (
        child,
        address,
    ):
        load.run(address, 0.3)
        assert len(load.acknowledged) > 100
        assert not load.refused
        control.write_text(f"{call} {errno.EIO}")
        time.sleep(0.3)
        before = len(load.acknowledged)
        try:
            load.run(address, 0.5)
            control.unlink()
            load.run(address, 0.5)
        except OSError:
            assert child.wait(20) == 1, "it may end, but not in silence"
        assert len(load.acknowledged) == before, "acknowledged after a failed write"
        child.kill()
        text = child.stderr.read()
        assert "failed: Input/output error" in text
        ends = "failed: Input/output error; the store refuses all messages" in text
        assert ends == (call != "pwrite"), "only a failed flush ends a broker"
        assert "Traceback" not in text
        assert (root / "abort").exists()
    check(root, load, tmp_path / "copy")


@pytest.mark.parametrize("ring", [0, 1 << 20])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_zeros_that_cannot_be_written_lose_nothing(tmp_path, fault, error, ring):
    """A worker writes them ahead of the log; the entries of queues fail as well."""
    control, environment = fault
    root, load = tmp_path / "store", Load()
    with broker(
        root, environment=environment, ring=ring, warmMapedFileEnable="true"
    ) as (
        _,
        address,
    ):
        load.run(address, 0.2)
        assert not load.refused
        control.write_text(f"pwrite {error}")
        load.run(address, 0.5)
        control.unlink()
    check(root, load, tmp_path / "copy")


def test_a_full_disk_refuses_until_there_is_room(tmp_path, fault):
    control, environment = fault
    root, load = tmp_path / "store", Load()
    with broker(root, environment=environment) as (_, address):
        load.run(address, 0.3)
        assert not load.refused
        control.write_text(f"fallocate {errno.ENOSPC}")
        load.run(address, 1)
        assert load.refused, "the log rolled without blocks"
        codes = {answer.code for answer in load.refused}
        assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}
        before = len(load.acknowledged)
        load.run(address, 0.2)
        assert len(load.acknowledged) == before
        control.unlink()
        load.run_until_stored(address)
    check(root, load, tmp_path / "copy")


def test_a_second_broker_is_refused_and_harms_nothing(tmp_path):
    root, load = tmp_path / "store", Load()
    with broker(root) as (_, address):
        load.run(address, 0.2)
        with pytest.raises(AssertionError, match="another broker uses"), broker(root):
            pass
        load.run(address, 0.2)
        assert not load.refused
    check(root, load, tmp_path / "copy")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_may_not_be_written_is_named(tmp_path):
    root = tmp_path / "store"
    root.mkdir(mode=0o555)
    with (
        pytest.raises(AssertionError, match="cannot use the data directory"),
        broker(root),
    ):
        pass


def test_a_clock_that_jumps_loses_nothing(tmp_path):
    """The time of a file's last write and of records mean nothing to recovery."""
    root, load = tmp_path / "store", Load()
    for jump_s in (0, -86_400, 86_400):
        with broker(root) as (_, address):
            load.run(address, 0.2)
        for path in root.rglob("*"):
            if path.is_file():
                moment = time.time() + jump_s
                os.utime(path, (moment, moment))
        assert not load.refused
    check(root, load, tmp_path / "copy")
    assert Path(root / "abort").exists()
