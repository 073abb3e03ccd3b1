"""InnerHeld: answers to `InnerCaller`s that wait for the disk and for slaves.

The reactor holds answers that are frames. These are no frames yet: a client of gRPC may
have no window for them when they are released. One task looks once a millisecond, as
long as any answer waits.
"""

import heapq
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.remoting.loop_clock import now_ms

if TYPE_CHECKING:
    from rmq._fastpath.log.watermark import Watermark
    from rmq.remoting.connection import Connection

LOOK_INTERVAL_S: Final = 0.001


class Waiting(NamedTuple):
    """One answer; the serial number keeps the order of equal offsets."""

    end_offset: int
    serial: int
    deadline_ms: int
    caller: "Connection"
    request: Command
    answer: Command
    on_timeout: Command | None


class InnerHeld:
    """The answers that wait, ordered by their end offsets."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []
        self._woken = trio.Event()
        self._serial = 0
        self._acknowledged: Watermark | None = None
        self._replicated: Watermark | None = None

    def attach(
        self, acknowledged: "Watermark | None", replicated: "Watermark | None"
    ) -> None:
        """Release answers by this watermark; `replicated` is the part of slaves."""
        self._acknowledged = acknowledged
        self._replicated = replicated

    def add(
        self,
        caller: "Connection",
        request: Command,
        answer: Command,
        *,
        end_offset: int,
        timeout_ms: int,
        on_timeout: Command | None,
    ) -> None:
        """Hold an answer until the log is durable up to `end_offset`."""
        assert self._acknowledged is not None, "a store with answers that wait"
        self._serial += 1
        deadline_ms = now_ms() + timeout_ms
        entry = Waiting(
            end_offset, self._serial, deadline_ms, caller, request, answer, on_timeout
        )
        heapq.heappush(self._waiting, entry)
        self._acknowledged.request_advance()
        self._woken.set()

    async def run(self) -> None:
        """Release answers until cancelled."""
        while True:
            await self._woken.wait()
            while self._waiting:
                self._release()
                await trio.sleep(LOOK_INTERVAL_S)
            self._woken = trio.Event()

    def _release(self) -> None:
        """Send the answers whose messages are durable, and those that are late."""
        reached = 0 if self._acknowledged is None else self._acknowledged.value
        while self._waiting and self._waiting[0].end_offset <= reached:
            entry = heapq.heappop(self._waiting)
            entry.caller.send_nowait(entry.answer)
        now = now_ms()
        late = [each for each in self._waiting if each.deadline_ms <= now]
        if not late:
            return
        self._waiting = [each for each in self._waiting if each.deadline_ms > now]
        heapq.heapify(self._waiting)
        for entry in late:
            code = self._late_code(entry.end_offset)
            entry.caller.send_nowait(entry.on_timeout or entry.request.reply(code))

    def _late_code(self, end_offset: int) -> ResponseCode:
        replicated = self._replicated
        if replicated is not None and replicated.value < end_offset:
            return ResponseCode.FLUSH_SLAVE_TIMEOUT
        return ResponseCode.FLUSH_DISK_TIMEOUT
