"""The locks of orderly consumers: which client of a group has a queue for itself.

A lock lasts 60 s from the last request for it; consumers ask again every 20 s.  Locks
are in memory only: after a restart, the first client that asks gets them.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rmq.clock import Clock
from rmq.protocol.bodies.common import MessageQueue

LOCK_TIME_MS: Final = 60_000
"""How long a lock lasts if its holder does not renew it."""

MAX_LOCKS: Final = 100_000
"""Locks of all groups together; the table gives no more."""


class _Lock(msgspec.Struct):
    """The holder of a queue, and the end of its time."""

    client_id: str
    expires_ms: int


class QueueLocks:
    """Known in Java as `RebalanceLockManager`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self._count = 0

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock the queues that nobody else holds; return those the client holds now."""
        now_ms = self._clock.now_ms()
        return [
            queue for queue in queues if self._take(group, client_id, queue, now_ms)
        ]

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Unlock those of the queues that this client holds."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                del locks[queue]
                self._count -= 1
        if not locks:
            self._groups.pop(group, None)
        assert self._count >= 0, self._count

    def is_orderly(self, group: str) -> bool:
        """Whether a client of the group holds a queue now."""
        now_ms = self._clock.now_ms()
        locks = self._groups.get(group, {})
        return any(lock.expires_ms > now_ms for lock in locks.values())

    def _take(
        self, group: str, client_id: str, queue: MessageQueue, now_ms: int
    ) -> bool:
        lock = self._groups.get(group, {}).get(queue)
        if lock is None:
            if self._count >= MAX_LOCKS:
                self._forget_expired(now_ms)
            if self._count >= MAX_LOCKS:
                return False
            lock = _Lock(client_id, 0)
            self._groups.setdefault(group, {})[queue] = lock
            self._count += 1
        elif lock.client_id != client_id and lock.expires_ms > now_ms:
            return False
        lock.client_id = client_id
        lock.expires_ms = now_ms + LOCK_TIME_MS
        return True

    def _forget_expired(self, now_ms: int) -> None:
        for group, locks in list(self._groups.items()):
            kept = {
                queue: lock for queue, lock in locks.items() if lock.expires_ms > now_ms
            }
            self._count -= len(locks) - len(kept)
            if kept:
                self._groups[group] = kept
            else:
                del self._groups[group]
