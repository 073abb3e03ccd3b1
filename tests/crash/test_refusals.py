"""A broker that refuses messages is stopped or killed: its kind of refusal decides.

The text of a refusal comes from the disk's error. Each kind meets several errors, also
those whose text says what another kind is about: a write that fails with "No space left
on device" is a failed write, not a full disk.
"""

import errno
import signal
from contextlib import contextmanager

import pytest

from rmq.protocol.codes import ResponseCode
from rmq.store.durability import RefusalKind
from tests.crash.laboratory import (
    DEFAULT_RING,
    Load,
    broker,
    check,
)

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

RING = 1 << 20
CALLS = [
    (RefusalKind.DISK_FULL, 0, "fallocate", (errno.ENOSPC, errno.EDQUOT)),
    (RefusalKind.WRITE_FAILED, 0, "pwrite", (errno.EIO, errno.ENOSPC, errno.EDQUOT)),
    (RefusalKind.FLUSH_FAILED, 0, "fdatasync", (errno.EIO, errno.ENOSPC)),
    (RefusalKind.DISK_FULL, RING, "fallocate", (errno.ENOSPC,)),
    (RefusalKind.FLUSH_FAILED, RING, "pwritev", (errno.EIO, errno.ENOSPC)),
]
"""A write from the ring is durable when it returns: one that fails is no mere write."""
each_kind = pytest.mark.parametrize(
    ("kind", "ring", "fails"),
    [
        pytest.param(
            *(kind, ring, f"{call} {error}"),
            id=f"{kind.name}-{errno.errorcode[error]}-ring-{ring}",
        )
        for kind, ring, call, errors in CALLS
        for error in errors
    ],
)
FILE_SYSTEM_SIZE = 4 << 20


def send_until_refused(load, address):
    """Send until messages are refused, or the broker ends."""
    try:
        load.run_until(address, lambda: load.refused)
    except OSError:
        return
    codes = {answer.code for answer in load.refused}
    assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}


def resumes(load, address):
    """Whether messages are acknowledged again; the disk is measured each 10 s."""
    try:
        load.run_until_stored(address, limit_s=15)
    except (AssertionError, OSError):
        return False
    return True


def check_next_start(root, load, tmp_path, ring=DEFAULT_RING):
    """Nothing was lost, and the next broker accepts messages."""
    check(root, load, tmp_path / "copy")
    with broker(root, "SYNC_FLUSH", ring=ring) as (_, address):
        assert resumes(load, address)
    check(root, load, tmp_path / "later copy")


@contextmanager
def refusing(root, load, fault, fails, ring):
    """A broker that refuses messages since the calls of a kind fail."""
    control, environment = fault
    with broker(root, "SYNC_FLUSH", environment=environment, ring=ring) as (
        child,
        address,
    ):
        load.run(address, 0.2)
        assert not load.refused
        control.write_text(fails)
        send_until_refused(load, address)
        yield child, address
    control.unlink(missing_ok=True)


@each_kind
def test_messages_are_accepted_again_or_not(tmp_path, fault, kind, ring, fails):
    root, load = tmp_path / "store", Load()
    with refusing(root, load, fault, fails, ring) as (_, address):
        fault[0].unlink()
        assert resumes(load, address) == kind.is_temporary
    check_next_start(root, load, tmp_path, ring)


@each_kind
def test_a_stop_keeps_abort_or_not(tmp_path, fault, kind, ring, fails):
    root, load = tmp_path / "store", Load()
    with refusing(root, load, fault, fails, ring) as (child, _):
        ends_itself = kind is RefusalKind.FLUSH_FAILED
        if not ends_itself:
            child.send_signal(signal.SIGTERM)
        assert child.wait(30) == int(ends_itself), child.stderr.read()
    assert (root / "abort").exists() == kind.keeps_abort
    check_next_start(root, load, tmp_path, ring)


@each_kind
def test_a_kill_while_messages_are_refused_loses_nothing(
    tmp_path, fault, kind, ring, fails
):
    root, load = tmp_path / "store", Load()
    with refusing(root, load, fault, fails, ring) as (child, _):
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    assert (root / "abort").exists(), kind
    check_next_start(root, load, tmp_path, ring)


@pytest.fixture
def small_disk(mounted):
    """A file system of a few megabytes."""
    with mounted("tmpfs", f"size={FILE_SYSTEM_SIZE}") as folder:
        yield folder


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize(
    ("flush", "ring"),
    [
        ("ASYNC_FLUSH", 0),
        ("ASYNC_FLUSH", RING),
        ("SYNC_FLUSH", 0),
        ("SYNC_FLUSH", RING),
        ("SYNC_FLUSH", DEFAULT_RING),
    ],
)
def test_a_disk_that_is_really_full(tmp_path, small_disk, flush, ring, end):
    """Stopped or killed while it is full; later there is room again.

    `abort` may stay after a stop, too: entries of queues or the checkpoint had no room.
    """
    root, load = small_disk / "store", Load()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(FILE_SYSTEM_SIZE // 2))
    with broker(root, flush, ring=ring) as (child, address):
        send_until_refused(load, address)
        assert load.acknowledged
        child.send_signal(end)
        code = child.wait(30)
        text = child.stderr.read()
        assert code == (0 if end == signal.SIGTERM else -end), text
    assert (root / "abort").exists() or end == signal.SIGTERM, text
    assert "closing the store failed" not in text
    check(root, load, tmp_path / "full copy")
    ballast.unlink()
    check_next_start(root, load, tmp_path, ring)


def test_room_on_a_full_disk_ends_the_refusal(tmp_path, small_disk):
    root, load = small_disk / "store", Load()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(FILE_SYSTEM_SIZE // 2))
    with broker(root) as (_, address):
        send_until_refused(load, address)
        ballast.unlink()
        assert resumes(load, address)
    check(root, load, tmp_path / "copy")
