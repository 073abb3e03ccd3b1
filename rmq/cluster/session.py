"""ReplicaSession: a slave, and the connection over which the master serves it.

In a group with a controller this is Java's `AutoSwitchHAConnection`.
The session sends the log straight from the mapped files, one frame per system call. At
the end of the log a session is *idle*: the next poll that stored something sends it at
once (`push`). A file is held while it is sent. A worker thread first reads pages that
are not in memory, so that no other task waits for the disk.
"""

from collections.abc import Callable
from contextlib import suppress

import trio

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.link import Link
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import (
    NEWEST_FILE,
    WHOLE_LOG,
    AckReader,
    Handshake,
    ReportReader,
    encode_head,
    encode_lineage,
)
from rmq.core.errors import RemoteProtocolError
from rmq.core.measure import Throughput
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.store.commit_log import CommitLog

RECEIVE_SIZE = 4096
PUSH_LIMIT = 1 << 20
"""Maximum bytes for one slave before other tasks run."""

FLOW_PAUSE_S = 0.02
"""Pause of a session that has sent the maximum bytes of this second."""

TRUSTED_REPORTS = 2
"""Number of reports after which a slave gets larger frames."""


class ReplicaSession:
    """A connected slave, seen from its master. Known in Java as `HAConnection`."""

    def __init__(
        self,
        link: Link,
        address: str,
        log: CommitLog,
        config: ReplicationConfig,
        on_report: Callable[["ReplicaSession", PhysicalOffset], None],
        term_state: TermState | None = None,
        on_handshake: Callable[["ReplicaSession"], None] = lambda _session: None,
    ) -> None:
        """With `term_state`, both brokers use the protocol of groups with a
        controller.
        """
        self.address = address
        self.handshake: Handshake | None = None
        self.next_offset = PhysicalOffset(-1)
        """The next offset to send; -1 before the first report."""

        self.rate = Throughput()
        self._link = link
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._log = log
        self._config = config
        self._on_report = on_report
        self._term_state = term_state
        self._on_handshake = on_handshake
        self._report_count = 0
        self._head = b""
        self._unsent_size = 0
        self._sent_confirm_offset = -1
        """The confirm offset that was sent last."""

        self._is_idle = False
        self._wake = trio.Event()

    async def run(self) -> None:
        """Serve until the connection ends; RemoteProtocolError for impossible input."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send)
            await self._receive()
            nursery.cancel_scope.cancel()

    # -- reports of the slave

    async def _receive(self) -> None:
        reader = ReportReader() if self._term_state is None else AckReader()
        silence_s = self._config.ha_silence_limit_ms / 1000
        with trio.CancelScope() as scope:
            while True:
                scope.deadline = trio.current_time() + silence_s
                count = await self._link.receive_into(self._buffer)
                if not count:
                    return
                reports: list[int] = []
                for found in reader.feed(bytes(self._buffer[:count])):
                    if isinstance(found, Handshake):
                        self._answer_handshake(found)
                    else:
                        reports.append(found)
                if reports and self.next_offset < 0:
                    self._apply_report(PhysicalOffset(reports.pop(0)))
                if reports:
                    self._apply_report(PhysicalOffset(reports[-1]))
        raise RemoteProtocolError(f"the slave was silent for {silence_s:g} s")

    def _answer_handshake(self, handshake: Handshake) -> None:
        """Send end and epochs of this log; an error if the socket has no room."""
        assert self._term_state is not None, (
            "only slaves of a group with a controller send a handshake"
        )
        if self.next_offset >= 0:
            return
        self.handshake = handshake
        self._on_handshake(self)
        answer = encode_lineage(self._term_state.handshake_answer(self._log.end_offset))
        if self._link.send_now(answer) < len(answer):
            raise RemoteProtocolError("the slave does not receive the answer")

    def _apply_report(self, offset: PhysicalOffset) -> None:
        if self.next_offset < 0:
            self.next_offset = PhysicalOffset(self._start_offset(offset))
            self._wake.set()
        self._report_count += 1
        self._on_report(self, offset)

    def _start_offset(self, offset: PhysicalOffset) -> int:
        """Return the offset at which to begin, for the first report of a slave."""
        log = self._log
        end, files = log.end_offset, log.files
        if offset == NEWEST_FILE:
            if self.handshake is None or self.handshake.wants_newest_file:
                return end - end % files.file_size
            return max(log.min_offset, 0)
        if offset > max(end, WHOLE_LOG):
            raise RemoteProtocolError(
                f"the slave's log ends at {offset}, the log of this broker at {end}: "
                "the slave has messages that this broker lost, or the log of another "
                "group"
            )
        if offset < log.min_offset:
            raise RemoteProtocolError(
                f"the slave asked for offset {offset}, the oldest here is "
                f"{log.min_offset}: the slave must begin with an empty log"
            )
        return offset

    # -- bytes for the slave

    def push(self) -> None:
        """Send newly stored bytes, if all earlier bytes have been sent.

        If there are no new bytes, but the confirm offset has grown, send this offset:
        readers at the slave wait for it.
        """
        if not self._is_idle:
            return
        if self.next_offset >= self._log.end_offset:
            self._push_confirm_offset()
            return
        file = self._log.files.find(self.next_offset)
        try:
            if file is not None and self._is_hot(file) and self._send_some(PUSH_LIMIT):
                return
        except (OSError, RemoteProtocolError):
            pass  # the task of the session meets the error again
        self._is_idle = False
        self._wake.set()

    def _push_confirm_offset(self) -> None:
        control = self._term_state
        if control is None or control.visible_limit.value <= self._sent_confirm_offset:
            return  # this is called after each poll
        if control.confirm_offset(self._log.end_offset) <= self._sent_confirm_offset:
            return
        self._head = self._encode_head()
        with suppress(OSError):  # the task of the session meets the error again
            self._send_part()
        if self._head:
            self._is_idle = False
            self._wake.set()

    async def _send(self) -> None:
        heartbeat_s = self._config.ha_heartbeat_interval_ms / 1000
        await self._wake.wait()
        while True:
            if not self._send_some(PUSH_LIMIT):
                await trio.lowlevel.wait_writable(self._link.socket)
            elif not self._unsent_size and not self._allowed_bytes():
                await trio.sleep(FLOW_PAUSE_S)
            elif self._unsent_size or self.next_offset < self._log.end_offset:
                await self._read_ahead()
            else:
                self._is_idle, self._wake = True, trio.Event()
                with trio.move_on_after(heartbeat_s) as scope:
                    await self._wake.wait()
                self._is_idle = False
                if scope.cancelled_caught and not self._unsent_size:
                    self._head = self._encode_head()

    async def _read_ahead(self) -> None:
        """Read the next bytes into memory; other tasks run meanwhile."""
        file = self._log.files.find(self.next_offset)
        if file is None or self._is_hot(file):
            await trio.lowlevel.checkpoint()
            return
        position = self.next_offset - file.base_offset
        size = min(PUSH_LIMIT, file.size - position)
        await in_thread(file.load, position, size)

    def _is_hot(self, file: MappedFile) -> bool:
        """Whether the next bytes are in memory, up to the end of the log."""
        if self._log.writer is not None:
            return True
        position = self.next_offset - file.base_offset
        end = min(file.size, self._log.end_offset - file.base_offset)
        size = min(self._frame_limit, end - position)
        return size <= 0 or file.is_resident(position, size)

    @property
    def _frame_limit(self) -> int:
        config = self._config
        if self._report_count < TRUSTED_REPORTS:
            return config.ha_first_frame_size
        return config.ha_frame_size

    def _send_some(self, limit: int) -> bool:
        """Send up to the log's end, or `limit` bytes; False if the socket is full."""
        while limit > 0:
            if not self._head and not self._unsent_size:
                self._unsent_size = self._next_size()
                if not self._unsent_size:
                    return True
                self._head = self._encode_head()
            sent = self._send_part()
            if sent == 0:
                return False
            limit -= sent
        return True

    def _encode_head(self) -> bytes:
        """Return the head of the next frame; a heartbeat is a head alone."""
        if self._term_state is None:
            return encode_head(self.next_offset, self._unsent_size)
        end = self._log.end_offset
        self._sent_confirm_offset = self._term_state.confirm_offset(end)
        return self._term_state.encode_part_head(
            self.next_offset, self._unsent_size, end
        )

    def _next_size(self) -> int:
        """Return the size of the next frame, 0 at the end of the log."""
        log = self._log
        rest = log.end_offset - self.next_offset
        if self._term_state is not None and rest > 0:
            rest = self._term_state.size_in_epoch(self.next_offset, log.end_offset)
        to_next_file = log.files.end_of(self.next_offset) - self.next_offset
        size = min(rest, to_next_file, self._frame_limit, self._allowed_bytes())
        return self._right_size(size) if size > 0 else 0

    def _right_size(self, size: int) -> int:
        """Return the number of next bytes that are not damaged."""
        bad = self._log.reader.find_bad(self.next_offset, size)
        if bad < 0:
            return size
        if bad <= self.next_offset:
            raise RemoteProtocolError(
                f"the log of this broker is damaged at {bad}; it gets the bytes from "
                "another broker"
            )
        return bad - self.next_offset

    def _allowed_bytes(self) -> int:
        """Return the number of bytes that may be sent in this second; Java counts only
        heads.
        """
        config = self._config
        if not config.ha_flow_control:
            return config.ha_frame_size
        return max(0, config.ha_bytes_per_second - self.rate.this_second())

    def _send_part(self) -> int:
        """Send the rest of the frame; return the number of sent bytes."""
        with self._unsent_bytes() as body:
            sent = self._link.send_now(self._head, body)
        self.rate.add(sent)
        of_head = min(sent, len(self._head))
        self._head = self._head[of_head:]
        self.next_offset = PhysicalOffset(self.next_offset + sent - of_head)
        self._unsent_size -= sent - of_head
        return sent

    def _unsent_bytes(self) -> memoryview:
        """Return the rest of the frame's bytes."""
        if not self._unsent_size:
            return memoryview(b"")
        file = self._log.files.find(self.next_offset)
        if file is None:
            raise RemoteProtocolError(
                f"offset {self.next_offset}, which the slave needs next, was deleted "
                "here"
            )
        if self._log.writer is None:
            return file.view(self.next_offset - file.base_offset, self._unsent_size)
        data = self._log.read(self.next_offset, self._unsent_size)
        assert data is not None, f"the log has no bytes at {self.next_offset}"
        return memoryview(data)
