"""Replica: follows a master, checks what it sends, and reports what is safe here.

connect, prove that the own log is the beginning of the master's (`prefix.py`), then
receive, append, report.  Under SYNC_FLUSH a report is what the disk has confirmed: the
master then answers senders for two disks.  A report is always a whole record, checked.
Every end of a connection is a sentence in `state`, for tools and the log; a log that
cannot follow is tried again later, but nothing of it is cut.
Known in Java as `DefaultHAClient`.
"""

import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from rmq._fastpath import Watermark
from rmq.errors import Diverged, PeerError, RemoteProtocolError, RmqError
from rmq.logs import Foreign
from rmq.replication.config import ReplicationConfig
from rmq.replication.prefix import Overlap
from rmq.replication.rate import ByteRate
from rmq.replication.wire import FrameReader, encode_report
from rmq.store.replica_writer import ReplicaWriter

logger = logging.getLogger(__name__)

RECEIVE_SIZE = 1 << 20
CONNECT_TIMEOUT_S = 5.0
RETRY_S = 5.0
FIRST_RETRY_S = 0.1
"""Pause before the next attempt; it doubles up to RETRY_S, as long as all fail."""


class Bounds(NamedTuple):
    """Begin and end of the master's log."""

    oldest: int
    end: int


FindMaster = Callable[[], Awaitable[str]]
"""Returns the HA address of the master; empty while nobody knows one."""

AskBounds = Callable[[], Awaitable[Bounds]]
"""Returns the bounds of the master's log; PeerError if it does not answer."""


class Ended(PeerError):
    """A connection to the master has ended; the text is the reason."""


class Replica:
    """The link of a slave to its master."""

    def __init__(
        self,
        config: ReplicationConfig,
        writer: ReplicaWriter,
        *,
        find_master: FindMaster,
        ask_bounds: AskBounds,
        on_append: Callable[[], None],
        durable: Watermark | None = None,
    ) -> None:
        """`on_append` is called after bytes were appended.

        With `durable` only what it has passed is reported.
        """
        self.state = "no master is known"
        self.is_following = False
        """Whether the log is proven to be a part of the master's, and grows with it."""

        self.is_copy = False
        """Whether nothing is known that speaks against the log: a slave whose master is
        away serves readers."""

        self.master = ""
        self.last_read_ms = 0
        self.last_write_ms = 0
        self.rate = ByteRate()
        self._config = config
        self._writer = writer
        self._find_master = find_master
        self._ask_bounds = ask_bounds
        self._on_append = on_append
        self._durable = durable
        self._reported = -1
        self._sending = trio.Lock()

    @property
    def end_offset(self) -> int:
        """End of the whole records here."""
        return self._writer.whole_offset

    @property
    def safe_offset(self) -> int:
        """Where the records end that are as safe here as they should be."""
        whole = self._writer.whole_offset
        return whole if self._durable is None else min(whole, self._durable.value)

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = FIRST_RETRY_S
        while True:
            was_following = False
            try:
                await self._follow_once()
            except (RmqError, OSError) as error:
                was_following = self.is_following
                self._note(error)
            finally:
                self.is_following = False
                self._writer.rewind()
            pause_s = FIRST_RETRY_S if was_following else min(2 * pause_s, RETRY_S)
            await trio.sleep(pause_s)

    def _note(self, error: Exception) -> None:
        """Keep why the connection ended; log a reason once."""
        text = str(error)
        if isinstance(error, Diverged):
            self.is_copy = False
            text = f"this log is not the beginning of the master's: {error}"
        where = f"master {self.master}: " if self.master else ""
        if self.state != where + text:
            logger.warning("%s%s", where, Foreign(text, 400))
        self.state = where + text

    async def _follow_once(self) -> None:
        self.master = await self._find_master()
        if not self.master:
            raise Ended("no master is known; name servers have none for this group")
        overlap = await self._overlap()
        host, _, port = self.master.rpartition(":")
        if not host or not port.isdecimal():
            raise Ended("its HA address is no host:port")
        with trio.move_on_after(CONNECT_TIMEOUT_S) as scope:
            stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
        if scope.cancelled_caught:
            raise Ended(f"it took no connection within {CONNECT_TIMEOUT_S:g} s")
        async with stream:
            await self._follow(stream, overlap)

    async def _overlap(self) -> Overlap:
        """Return what to ask for first."""
        tail = self._writer.tail()
        if tail is not None:
            return Overlap(tail)
        try:
            oldest = (await self._ask_bounds()).oldest
        except PeerError:
            if not self._config.ha_master_address:
                raise
            oldest = 0  # without a name server nobody knows whom to ask
        return Overlap(None, oldest)

    async def _follow(self, stream: trio.SocketStream, overlap: Overlap) -> None:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reported = -1
        self.state = f"comparing logs with the master {self.master}"
        await self._report(stream, overlap.report)
        if overlap.is_proven:
            self._begin_to_follow()
        ended: Exception = Ended("it ended")
        async with trio.open_nursery() as nursery:
            if self._durable is not None:
                nursery.start_soon(self._report_durable, stream, self._durable)
            nursery.start_soon(self._report_regularly, stream)
            try:
                await self._receive(stream, overlap)
            except (RmqError, OSError) as error:
                ended = error
            nursery.cancel_scope.cancel()
        raise ended

    def _begin_to_follow(self) -> None:
        self.is_following = self.is_copy = True
        self.state = f"following {self.master}"
        logger.info("following the master %s from %d", self.master, self.end_offset)

    # -- what comes

    async def _receive(self, stream: trio.SocketStream, overlap: Overlap) -> None:
        reader = FrameReader()
        buffer = memoryview(bytearray(RECEIVE_SIZE))
        silence_s = self._config.ha_silence_limit_ms / 1000
        while True:
            with trio.move_on_after(silence_s) as scope:
                count = await stream.socket.recv_into(buffer)
            if scope.cancelled_caught:
                raise Ended(f"it was silent for {silence_s:g} s")
            if not count:
                raise Ended(await self._why_it_closed())
            self.last_read_ms = int(time.time() * 1000)
            self.rate.add(count)
            try:
                pieces = reader.feed(buffer[:count])
            except RemoteProtocolError as error:
                raise Ended(f"it sent {error}") from error
            for offset, piece in pieces:
                await self._take(offset, piece, overlap)
            self._on_append()
            await self._report_if_grown(stream)

    async def _take(self, offset: int, piece: memoryview, overlap: Overlap) -> None:
        if not piece:
            if not overlap.is_proven:
                raise Ended(await self._why_it_has_nothing())
            return
        offset, new = overlap.take(offset, piece)
        if overlap.is_proven and not self.is_following:
            self._begin_to_follow()
        self._writer.append(offset, new)

    async def _why_it_closed(self) -> str:
        if self.is_following:
            return "it closed the connection"
        return await self._compared("it closed the connection")

    async def _why_it_has_nothing(self) -> str:
        return await self._compared("it does not have the last record of this log")

    async def _compared(self, what: str) -> str:
        """Explain what the master did by the bounds of its log."""
        try:
            bounds = await self._ask_bounds()
        except PeerError as error:
            return f"{what}; the bounds of its log are unknown: {error}"
        end = self._writer.whole_offset
        self.is_copy &= bounds.oldest <= end <= bounds.end
        if bounds.end < end:
            return (
                f"{what}: this log ends at {end}, the master's at {bounds.end}, so "
                "that this broker has what the master lost: make it the master, or "
                "begin with an empty log here"
            )
        if end < bounds.oldest:
            return (
                f"{what}: this log ends at {end}, the oldest message of the master is "
                f"at {bounds.oldest}: begin with an empty log here"
            )
        return f"{what}; its log has {bounds.oldest} to {bounds.end}, this one to {end}"

    # -- what goes

    async def _report(self, stream: trio.SocketStream, offset: int) -> None:
        """Send a report; whoever receives meets an error of the connection."""
        async with self._sending:
            self._reported = max(self._reported, offset)
            self.last_write_ms = int(time.time() * 1000)
            with suppress(trio.BrokenResourceError):
                await stream.send_all(encode_report(self._reported))

    async def _report_if_grown(self, stream: trio.SocketStream) -> None:
        if self.is_following and self.safe_offset > self._reported:
            await self._report(stream, self.safe_offset)

    async def _report_durable(
        self, stream: trio.SocketStream, durable: Watermark
    ) -> None:
        """Report when the disk has confirmed more."""
        descriptor = durable.subscribe()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                os.eventfd_read(descriptor)
                await self._report_if_grown(stream)
        finally:
            durable.unsubscribe(descriptor)

    async def _report_regularly(self, stream: trio.SocketStream) -> None:
        interval_s = self._config.ha_heartbeat_interval_ms / 1000
        while True:
            await trio.sleep(interval_s)
            await self._report(stream, self._reported)
