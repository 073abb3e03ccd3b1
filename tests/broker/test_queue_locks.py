"""The table of locks: shares of hosts; requests 41 and 42 have tests of their own."""

import pytest

from rmq.broker import queue_locks
from rmq.broker.queue_locks import LOCK_TIME_MS, QueueLocks
from rmq.protocol.bodies.common import MessageQueue
from rmq.testing import ManualClock

GREEDY, HONEST = "10.0.0.1:1", "10.0.0.2:1"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def locks(clock, monkeypatch):
    monkeypatch.setattr(queue_locks, "MAX_LOCKS", 8)
    return QueueLocks(clock)


def queues(count):
    return [MessageQueue(topic="T", broker_name="b", queue_id=i) for i in range(count)]


def test_one_host_takes_at_most_half_of_all_locks(locks):
    """One connection took all 100,000 locks, and no group could be orderly."""
    assert len(locks.lock("G", "greedy", queues(20), GREEDY)) == 4
    assert len(locks.lock("H", "honest", queues(2), HONEST)) == 2
    assert len(locks.lock("H", "honest", queues(2), "10.0.0.3:1")) == 2, "it moved"


def test_expired_locks_count_for_nobody(locks, clock):
    locks.lock("G", "greedy", queues(4), GREEDY)
    clock.ms += LOCK_TIME_MS
    assert len(locks.lock("G", "honest", queues(20), HONEST)) == 4
    assert locks.lock("G", "greedy", queues(4), GREEDY) == []
    locks.unlock("G", "honest", queues(20))
    assert len(locks.lock("G", "greedy", queues(4), GREEDY)) == 4
    assert locks.quota.used == 4
