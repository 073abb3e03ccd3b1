"""MemberNotices: notifies the members of a consumer group that the group changed.

Known in Java as `DefaultConsumerIdsChangeListener`.
Each member gets request 40, and divides the queues again.  The first change of a group
is announced at once; later changes of the same second are announced together at the end
of the second. When a thousand members join, each gets a few notices, not a thousand.
Changes of a group with more than NOTICES_PER_TURN members always wait for the end.
"""

from collections.abc import Awaitable, Callable, Iterable

import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from rmq.remoting.connection import Connection

ROUND_S = 1.0
"""Length of a round, in which changed groups are collected.

Java's clients divide the queues each 20 s, and as soon as they are notified.
"""

NOTICES_PER_TURN = 100
"""Maximum number of notices in one turn: they take 1 ms of the serving thread, or 2 ms
if they create the outboxes.
"""


class MemberNotices:
    """The groups that changed in this round, and the groups that were notified."""

    def __init__(self, members: Callable[[str], Iterable[Connection]]) -> None:
        """`members` returns the connections of a group that want notices."""
        self._members = members
        self._notified: set[str] = set()
        self._changed: set[str] = set()
        self._has_notified = trio.Event()
        self.sent = 0

    def notify_members(self, group: str) -> None:
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
        frame = _encode_notice(group)
        for member in members:
            self._send(member, frame)

    async def run(self, next_turn: Callable[[], Awaitable[None]]) -> None:
        """Run until cancelled. Each round ends one second after its first notice."""
        while True:
            await self._has_notified.wait()
            await trio.sleep(ROUND_S)
            await self.end_round(next_turn)

    async def end_round(self, next_turn: Callable[[], Awaitable[None]]) -> None:
        """Notify the groups that changed after their last notice."""
        self._notified, self._changed = self._changed, set()
        if not self._notified:
            self._has_notified = trio.Event()
        sent = 0
        for group in list(self._notified):
            frame = _encode_notice(group)
            for member in list(self._members(group)):
                self._send(member, frame)
                sent += 1
                if not sent % NOTICES_PER_TURN:
                    await next_turn()

    def _send(self, member: Connection, frame: bytes) -> None:
        member.send_frame(frame)
        self.sent += 1


def _encode_notice(group: str) -> bytes:
    """Return request 40 for a group; members send no answer, so the opaque has no
    meaning.
    """
    header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    return encode(Command.request(code, header, oneway=True))
