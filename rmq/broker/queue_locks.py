"""QueueLocks: orderly consumers lock queues, so that only one client reads each.

A lock lasts 60 s from the last request for it; consumers ask again every 20 s.  Locks
are in memory only: after a restart, the first client that asks gets a queue's lock.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from rmq.broker.quota import Quota, peer_at
from rmq.core.clock import Clock
from rmq.protocol.bodies.common import MessageQueue

LOCK_TIME_MS: Final = 60_000
"""Time after which a lock expires that its holder has not renewed."""

MAX_LOCKS: Final = 100_000
"""Maximum number of locks of all groups together."""


class _Lock(msgspec.Struct):
    """The client that holds a queue, its peer, and when the lock expires."""

    client_id: str
    peer: str
    expires_ms: int


class QueueLocks:
    """Known in Java as `RebalanceLockManager`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._groups: dict[str, dict[MessageQueue, _Lock]] = {}
        self.quota = Quota(MAX_LOCKS, "queue locks", "spread groups over brokers")

    def lock(
        self,
        group: str,
        client_id: str,
        queues: Iterable[MessageQueue],
        client: str = "",
    ) -> list[MessageQueue]:
        """Lock the queues that no other client holds; return the queues that this
        client holds now.

        `client` is the client's address; a quota limits its host.
        """
        wanted = _Lock(client_id, peer_at(client), self._clock.now_ms() + LOCK_TIME_MS)
        known = self._groups.get(group, {})
        locked = []
        for queue in queues:
            lock = known.get(queue)
            if lock is not None and lock.client_id == client_id:  # almost always
                lock.expires_ms = wanted.expires_ms
                locked.append(queue)
            elif self._lock_queue(group, queue, wanted):
                locked.append(queue)
        return locked

    def unlock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> None:
        """Unlock the given queues if this client holds their locks."""
        locks = self._groups.get(group, {})
        for queue in queues:
            lock = locks.get(queue)
            if lock is not None and lock.client_id == client_id:
                self.quota.give_back(lock.peer)
                del locks[queue]
        if not locks:
            self._groups.pop(group, None)

    def shift_times(self, step_ms: int) -> None:
        """Move the expiry times of locks, because the clock was set."""
        for locks in self._groups.values():
            for lock in locks.values():
                lock.expires_ms += step_ms

    def is_orderly(self, group: str) -> bool:
        """Whether a client of the group holds a queue now."""
        now_ms = self._clock.now_ms()
        locks = self._groups.get(group, {})
        return any(lock.expires_ms > now_ms for lock in locks.values())

    def _lock_queue(self, group: str, queue: MessageQueue, wanted: _Lock) -> bool:
        now_ms = wanted.expires_ms - LOCK_TIME_MS
        locks = self._groups.get(group)
        lock = None if locks is None else locks.get(queue)
        if lock is not None:
            if lock.client_id != wanted.client_id and lock.expires_ms > now_ms:
                return False
            if lock.client_id == wanted.client_id or lock.peer == wanted.peer:
                lock.client_id, lock.expires_ms = wanted.client_id, wanted.expires_ms
                return True
        if not self.quota.has_room(wanted.peer):
            self._remove_expired(now_ms)
        lock = self._groups.get(group, {}).get(queue)
        if not self.quota.has_room(wanted.peer):
            return False
        if lock is not None:
            self.quota.give_back(lock.peer)
        self.quota.add(wanted.peer, 1)
        self._groups.setdefault(group, {})[queue] = msgspec.structs.replace(wanted)
        return True

    def _remove_expired(self, now_ms: int) -> None:
        for group, locks in list(self._groups.items()):
            for queue, lock in list(locks.items()):
                if lock.expires_ms <= now_ms:
                    self.quota.give_back(lock.peer)
                    del locks[queue]
            if not locks:
                del self._groups[group]
