"""A store that runs out of descriptors goes on, and starts again."""

import errno
import os
import subprocess
import sys

import pytest

from rmq.store.descriptors import DescriptorReserve


class Shortage:
    """Opens nothing as often as it is told, then a real file."""

    def __init__(self, times, number=errno.EMFILE):
        self.times, self.number = times, number

    def __call__(self):
        if self.times:
            self.times -= 1
            raise OSError(self.number, os.strerror(self.number))
        return "open"


@pytest.fixture
def reserve():
    reserve = DescriptorReserve(2)
    reserve.open_reserve()
    yield reserve
    reserve.close()
    assert len(reserve) == 0


def test_a_shortage_is_tried_again_with_one_of_the_reserve(reserve, monkeypatch):
    assert len(reserve) == 2
    assert reserve.open(Shortage(0)) == "open"
    assert reserve.open(Shortage(1)) == "open"
    assert len(reserve) == 2, "what was needed for a moment is taken again"
    with pytest.raises(OSError, match="Too many"):
        reserve.open(Shortage(2))


def test_an_empty_reserve_is_a_plain_error(reserve):
    reserve.close()
    with pytest.raises(OSError, match="Too many"):
        reserve.open(Shortage(1))
    reserve.open_reserve()
    assert reserve.open(Shortage(1)) == "open"


def test_other_errors_are_none_of_its_business(reserve):
    with pytest.raises(OSError, match="space"):
        reserve.open(Shortage(1, errno.ENOSPC))


TOPICS, ROUNDS = 300, 3

PROGRAM = f"""
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.results import PutStatus

config = StoreConfig(
    root_dir=sys.argv[1], commit_log_file_size=65536, queue_file_size=200
)
store = MessageStore.open(config, clock=SystemClock(), store_host=bytes(8))
connections = []
if sys.argv[2] == "taken":
    try:
        while True:
            connections.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
first = int(sys.argv[3])
for round_ in range(first, first + {ROUNDS}):
    for topic in range({TOPICS}):
        body = b"%d %d" % (topic, round_) + bytes(int(sys.argv[4]))
        message = Message(f"T{{topic}}", 0, body, 0, 0, 1, bytes(8))
        result = store.writes.put(message)
        assert result.status is PutStatus.PUT_OK, (topic, round_, result)
        assert result.queue_offset == round_, (topic, result)
    store.writes.end_batch()
    store.flush_queues(thorough=True)
for topic in range({TOPICS}):
    for round_ in range(first + {ROUNDS}):
        found = store.reads.get(f"T{{topic}}", 0, round_, 1)
        assert b"%d %d" % (topic, round_) in found.body, (topic, round_, found.status)
assert store.durability.is_writable
assert len(store.queues.files) <= 64
for connection in connections:
    os.close(connection)
if sys.argv[5] == "close":
    store.close()
else:
    os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "kill"])
def test_hundreds_of_topics_at_256_descriptors(tmp_path, end):
    """They work, and the store starts again, also where strangers took the others."""
    for first, taken in ((0, "free"), (ROUNDS, "taken"), (2 * ROUNDS, "free")):
        subprocess.run(
            [sys.executable, "-c", PROGRAM, tmp_path, taken, str(first), "10", end],
            check=True,
            timeout=120,
        )


@pytest.mark.slow
def test_the_log_rolls_while_strangers_have_all_descriptors(tmp_path):
    """Five files of the log, each for good, where nobody else can open anything."""
    subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path, "taken", "0", "250", "close"],
        check=True,
        timeout=120,
    )
    assert len(list((tmp_path / "commitlog").iterdir())) >= 5
