"""MemberNotices: notifies the members of a consumer group that the group changed.

Each member gets request 40, and divides the queues again.  The first change of a group
is announced at once, later changes of the same second together at its end: when a
thousand members join, each of them is notified a few times and not a thousand times.
Changes of a group with more members than NOTICES_PER_TURN wait for the end, too.
"""

from collections.abc import Awaitable, Callable, Iterable

import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from rmq.remoting.connection import Connection

ROUND_S = 1.0
"""Java's clients divide the queues each 20 s, and as soon as they are notified."""

NOTICES_PER_TURN = 100
"""1 ms of the serving thread, 2 where outboxes have to be made first."""


class MemberNotices:
    """Groups that changed, and those that were notified in this round."""

    def __init__(self, members: Callable[[str], Iterable[Connection]]) -> None:
        """`members` returns whom to notify of a group now."""
        self._members = members
        self._notified: set[str] = set()
        self._changed: set[str] = set()
        self._has_notified = trio.Event()
        self.sent = 0

    def change(self, group: str) -> None:
        """Notify the members of a group, now or at the end of the round."""
        if group in self._notified:
            self._changed.add(group)
            return
        self._notified.add(group)
        self._has_notified.set()
        members = list(self._members(group))
        if len(members) > NOTICES_PER_TURN:
            self._changed.add(group)
            return
        frame = _frame(group)
        for member in members:
            self._send(member, frame)

    async def run(self, next_turn: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled: end a round a second after its first notice."""
        while True:
            await self._has_notified.wait()
            await trio.sleep(ROUND_S)
            await self.end_round(next_turn)

    async def end_round(self, next_turn: Callable[[], Awaitable[None]]) -> None:
        """Notify the groups that changed since they were notified."""
        self._notified, self._changed = self._changed, set()
        if not self._notified:
            self._has_notified = trio.Event()
        sent = 0
        for group in list(self._notified):
            frame = _frame(group)
            for member in list(self._members(group)):
                self._send(member, frame)
                sent += 1
                if not sent % NOTICES_PER_TURN:
                    await next_turn()

    def _send(self, member: Connection, frame: bytes) -> None:
        member.send_frame(frame)
        self.sent += 1


def _frame(group: str) -> bytes:
    """Return the request; its opaque need not be unique, as nobody answers it."""
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    return encode(Command.request(code, header, oneway=True))
