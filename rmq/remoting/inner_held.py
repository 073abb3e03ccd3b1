"""InnerHeld: answers to `InnerCaller`s that wait for the disk and for slaves.

The reactor holds answers that are frames. Answers of gRPC are no frames yet, because a
client may have no window for them at the time of their release. One task checks once
per millisecond while answers wait. The cost of a check depends only on the answers that
it sends.

Limit: HELD_LIMIT answers; requests above the limit are refused as busy.
"""

import heapq
from typing import TYPE_CHECKING, Final

import trio

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.loop_clock import now_ms

if TYPE_CHECKING:
    from rmq._fastpath.log.claim import Claim
    from rmq._fastpath.log.watermark import Watermark
    from rmq.remoting.connection import Connection

LOOK_INTERVAL_S: Final = 0.001
HELD_LIMIT: Final = 65_536
"""Maximum number of answers that wait: each has about 1 KiB with its call."""

FEW: Final = 64
"""Number of sent answers that a heap may keep without a clean-up."""


class _Waiting:
    """An answer; after the deadline `late` replaces it."""

    __slots__ = ("answer", "caller", "end_offset", "has_code", "is_sent", "late")

    def __init__(
        self,
        caller: "Connection",
        answer: Command,
        late: Command,
        end_offset: int,
        *,
        has_code: bool,
    ) -> None:
        self.caller = caller
        self.answer = answer
        self.late = late
        self.end_offset = end_offset
        self.has_code = has_code
        self.is_sent = False


_Heap = list[tuple[int, int, _Waiting]]
"""Answers by an offset or a time; the serial number keeps the order of answers with
equal keys.
"""


class InnerHeld:
    """The answers that wait, by their end offsets and by their deadlines."""

    def __init__(self) -> None:
        self.count = 0
        """Number of answers that wait."""

        self._by_offset: _Heap = []
        self._by_deadline: _Heap = []
        self._woken = trio.Event()
        self._serial = 0
        self._acknowledged: Watermark | None = None
        self._replicated: Watermark | None = None
        self._claim: Claim | None = None

    @property
    def size(self) -> int:
        """Number of entries in memory: two for each waiting answer, and some of sent
        answers.
        """
        return len(self._by_offset) + len(self._by_deadline)

    def attach(
        self,
        acknowledged: "Watermark | None",
        replicated: "Watermark | None",
        claim: "Claim | None" = None,
    ) -> None:
        """Release answers by this watermark; `replicated` is the part of slaves. The
        `claim` of the log has the confirmed offset before the answers leave.
        """
        self._acknowledged = acknowledged
        self._replicated = replicated
        self._claim = claim

    def add(
        self,
        caller: "Connection",
        request: Command,
        answer: Command,
        *,
        end_offset: int,
        timeout_ms: int,
        on_timeout: Command | None,
    ) -> bool:
        """Hold an answer until the log is durable up to `end_offset`.

        If too many answers wait, do nothing and return False.
        """
        if self.count >= HELD_LIMIT:
            return False
        assert self._acknowledged is not None, "a store with answers that wait"
        self._serial += 1
        self.count += 1
        late = on_timeout or request.reply(ResponseCode.FLUSH_DISK_TIMEOUT)
        has_code = on_timeout is not None
        waiting = _Waiting(caller, answer, late, end_offset, has_code=has_code)
        heapq.heappush(self._by_offset, (end_offset, self._serial, waiting))
        deadline_ms = now_ms() + timeout_ms
        heapq.heappush(self._by_deadline, (deadline_ms, self._serial, waiting))
        self._acknowledged.request_advance()
        self._woken.set()
        return True

    async def run(self) -> None:
        """Release answers until cancelled."""
        while True:
            await self._woken.wait()
            while self.count:
                self.release()
                await trio.sleep(LOOK_INTERVAL_S)
            self._woken = trio.Event()

    def release(self) -> None:
        """Send answers with durable messages, and answers after their deadline."""
        reached = 0 if self._acknowledged is None else self._acknowledged.value
        if self._claim is not None:
            self._claim.confirm()
        while self._by_offset and self._by_offset[0][0] <= reached:
            waiting = heapq.heappop(self._by_offset)[2]
            self._send(waiting, waiting.answer)
        now = now_ms()
        while self._by_deadline and self._by_deadline[0][0] <= now:
            waiting = heapq.heappop(self._by_deadline)[2]
            if not waiting.has_code:
                waiting.late.code = self._late_code(waiting.end_offset)
            self._send(waiting, waiting.late)
        for heap in (self._by_offset, self._by_deadline):
            if len(heap) > 2 * self.count + FEW:
                heap[:] = [each for each in heap if not each[2].is_sent]
                heapq.heapify(heap)

    def _send(self, waiting: _Waiting, answer: Command) -> None:
        """Send the answer, or the one for a late release; a second call has no
        effect.
        """
        if not waiting.is_sent:
            waiting.is_sent = True
            self.count -= 1
            waiting.caller.send_nowait(answer)

    def _late_code(self, end_offset: int) -> ResponseCode:
        replicated = self._replicated
        if replicated is not None and replicated.value < end_offset:
            return ResponseCode.FLUSH_SLAVE_TIMEOUT
        return ResponseCode.FLUSH_DISK_TIMEOUT
