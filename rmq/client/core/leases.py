"""Leases: the popped messages that a process holds, and the acks that a broker has not
answered.

A lease belongs to the broker, not to a connection: after a reconnect the same handle
renews or acknowledges it. A broker that was killed may deliver a message again that
this process holds or has settled. `add` finds such messages by their id.

Invariants:

* A lease is in `_held` until it is settled or returned.
* An ack is in `_owed` or `_sent` until its broker has answered it, or its lease has
  expired.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from rmq.client.core.pop import ReceiptHandle, ack_requests
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import ChangeInvisibleTimeResponseHeader

MAX_SETTLED: Final = 10_000
"""Maximum number of settled messages that are remembered; each takes about 200
bytes.
"""

RENEW_PART: Final = 2 / 3
"""A lease is renewed when less than this part of its time is left."""

Key = tuple[str, str, str]
"""Topic, group and message id."""


class Arrival(Enum):
    """The state of a popped message in this process."""

    NEW = "new"
    HELD = "held"
    SETTLED = "settled"


class Lease:
    """The lease of one message; times are seconds of a steady clock."""

    __slots__ = ("expires_s", "group", "handle", "is_changing", "key", "tag", "topic")

    def __init__(
        self,
        tag: str,
        msg_id: str,
        topic: str,
        group: str,
        handle: ReceiptHandle,
        expires_s: float,
    ) -> None:
        self.tag = tag
        self.topic = topic
        self.group = group
        self.key: Key = topic, group, msg_id
        self.handle = handle
        self.expires_s = expires_s
        self.is_changing = False


class AckRequest(NamedTuple):
    """A request, and the leases that it settles."""

    command: Command
    leases: list[Lease]


class Leases:
    """All leases of one process at one broker; a lease lasts `visibility_s`."""

    def __init__(self, visibility_s: float) -> None:
        self.visibility_s = visibility_s
        self._held: dict[str, Lease] = {}
        self._tags: dict[Key, str] = {}
        self._settled: OrderedDict[Key, None] = OrderedDict()
        self._owed: deque[Lease] = deque()
        self._sent: dict[int, Lease] = {}

    def __len__(self) -> int:
        return len(self._held)

    def statistics(self) -> dict[str, int]:
        """Return the number of messages in each state."""
        return {
            "held": len(self._held),
            "acks owed": len(self._owed),
            "acks sent": len(self._sent),
            "settled": len(self._settled),
        }

    def find(self, tag: str) -> Lease | None:
        """Return the lease of a delivery tag."""
        return self._held.get(tag)

    @property
    def owes_acks(self) -> bool:
        """Whether an ack has no answer yet."""
        return bool(self._owed or self._sent)

    # -- messages

    def add(self, lease: Lease) -> Arrival:
        """Add a popped message.

        A message that is held keeps its tag and gets the new handle. A message that is
        settled is acknowledged again.
        """
        if lease.key in self._settled:
            self._owed.append(lease)
            return Arrival.SETTLED
        tag = self._tags.get(lease.key)
        if tag is not None:
            held = self._held[tag]
            held.handle, held.expires_s = lease.handle, lease.expires_s
            return Arrival.HELD
        self._held[lease.tag] = lease
        self._tags[lease.key] = lease.tag
        return Arrival.NEW

    def settle(self, tag: str) -> None:
        """Queue the ack of a message; do nothing if the lease of the message has
        ended.
        """
        lease = self._remove(tag)
        if lease is None:
            return
        self._settled[lease.key] = None
        if len(self._settled) > MAX_SETTLED:
            self._settled.popitem(last=False)
        self._owed.append(lease)

    def release(self, tags: Iterable[str]) -> list[Lease]:
        """Remove and return the leases of messages to give back."""
        found = [self._remove(tag) for tag in tags]
        return [each for each in found if each is not None]

    def _remove(self, tag: str) -> Lease | None:
        lease = self._held.pop(tag, None)
        if lease is not None:
            del self._tags[lease.key]
        return lease

    # -- acks

    def take_acks(self, broker: str, now_s: float) -> list[AckRequest]:
        """Return requests with the queued acks.

        The ack of a message whose handle is changing waits for the new handle. An
        expired lease gets no ack: another consumer may have the message.
        """
        parts: dict[tuple[str, str], list[Lease]] = {}
        waiting: list[Lease] = []
        while self._owed:
            lease = self._owed.popleft()
            if lease.is_changing:
                waiting.append(lease)
            elif now_s < lease.expires_s:
                parts.setdefault((lease.topic, lease.group), []).append(lease)
        self._owed.extend(waiting)
        found: list[AckRequest] = []
        for (topic, group), leases in parts.items():
            by_handle = {each.handle: each for each in leases}
            handles = ack_requests(by_handle, topic, group, broker)
            found += [
                AckRequest(command, [by_handle[each] for each in part])
                for command, part in handles
            ]
        for request in found:
            self._sent.update((id(each), each) for each in request.leases)
        return found

    def confirm(self, request: AckRequest) -> None:
        """Discard acks that the broker has answered."""
        for lease in request.leases:
            self._sent.pop(id(lease), None)

    def on_connection_lost(self) -> None:
        """Queue the unanswered acks again."""
        self._owed.extendleft(reversed(self._sent.values()))
        self._sent.clear()
        for lease in (*self._held.values(), *self._owed):
            lease.is_changing = False

    # -- renewals

    def begin_renewals(self, now_s: float) -> list[Lease]:
        """Return the leases to renew now.

        A lease that has expired stays held: its message may come to this process again.
        """
        limit_s = now_s + self.visibility_s * RENEW_PART
        due = [
            each
            for each in list(self._held.values())  # other threads may settle
            if now_s < each.expires_s <= limit_s and not each.is_changing
        ]
        for lease in due:
            lease.is_changing = True
        return due

    def end_renewal(
        self,
        lease: Lease,
        answer: ChangeInvisibleTimeResponseHeader | None,
        now_s: float,
    ) -> None:
        """Record the answer to a renewal; `answer` is None if the broker has refused
        the renewal.
        """
        lease.is_changing = False
        if answer is not None:
            lease.handle = lease.handle.apply_change(answer)
            lease.expires_s = now_s + self.visibility_s
