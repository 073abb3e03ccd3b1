"""ReplicaFetcher: copies the log of a master, checks it, and reports its safe offset.

In a group with a controller this is Java's `AutoSwitchHAClient`.
It connects and proves that its own log is the beginning of the master's log
(`log_prefix.py`). After this it receives, appends and reports. Under SYNC_FLUSH it
reports only bytes that the disk has confirmed: then a message is on two disks when the
master answers its sender. A report always ends at a whole, checked record. At the end
of a connection `state` gets a sentence with the reason, for tools and the log. A slave
whose log differs from the master's tries again later. `divergence.py` decides which
messages it discards. Known in Java as `DefaultHAClient`.
"""

# tidy: long — one connection, from the proof of the log to its last report

import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.divergence import KEY, Divergence, count_equal
from rmq.cluster.link import CONNECT_TIMEOUT_S, Link, connect, send_handshake
from rmq.cluster.log_prefix import Overlap
from rmq.cluster.log_source import LogBounds, LogSource
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import (
    WHOLE_LOG,
    FrameReader,
    LineageReader,
    Part,
    PartReader,
    encode_ack,
    encode_report,
)
from rmq.core.errors import Diverged, PeerError, RemoteProtocolError, RmqError
from rmq.core.logs import Foreign
from rmq.core.measure import Throughput
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.store.replica_writer import ReplicaWriter

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls

logger = logging.getLogger(__name__)

RECEIVE_SIZE = 1 << 20
RETRY_S = 5.0
FIRST_RETRY_S = 0.1
"""Pause before the next attempt; it doubles up to RETRY_S while all attempts fail."""

STABLE_S = 10.0
"""Duration after which a connection counts as a success, even without received
bytes.
"""

NUMBERS = re.compile(r"\d+")

Cut = Callable[[PhysicalOffset], Awaitable[Sequence[object]]]
"""Truncates the log at an offset; at NO_RECORD it moves the whole log to `aside/`.

Returns a sentence for each copy of the removed bytes.
"""

NO_RECORD = PhysicalOffset(0)


class ConnectionEnded(PeerError):
    """A connection to the master has ended; the text is the reason."""


class UnresolvedDivergence(Diverged):
    """The two logs diverged, and nothing was truncated; the text names the remedy."""

    def __init__(self, offset: PhysicalOffset, text: str) -> None:
        super().__init__(offset, text)
        self.text = text

    def __str__(self) -> str:
        """The sentence alone."""
        return self.text


class ReplicaFetcher:
    """The connection of a slave to its master, opened again when it ends."""

    def __init__(  # noqa: PLR0913
        self,
        config: ReplicationConfig,
        writer: ReplicaWriter,
        source: LogSource,
        *,
        on_append: Callable[[], None],
        on_following: Callable[[], None] = lambda: None,
        durable: Watermark | None = None,
        cut: Cut | None = None,
        tls: "LinkTls | None" = None,
        term_state: TermState | None = None,
    ) -> None:
        """`on_append` is called after bytes were appended, `on_following` when
        `is_following` begins.

        With `durable` the slave reports only offsets that this watermark has passed.
        Without `cut` the fetcher never truncates the log. With `tls` the connection
        uses TLS. With `term_state`, the master's log is right if the two logs differ.
        """
        self.state = "no master is known"
        self.is_following = False
        """Whether the log is proven to be the beginning of the master's log, and grows
        with the master's log.
        """

        self.is_copy = False
        """False after a comparison found that the logs differ.

        A slave whose master is away serves readers while this is True.
        """

        self.master = ""
        self.last_read_ms = self.last_write_ms = 0
        self.rate = Throughput()
        self._config = config
        self._writer = writer
        self._source = source
        self._on_append = on_append
        self._on_following = on_following
        self._cut = cut
        self._durable = durable
        self._tls = tls
        self._term_state = term_state
        self._encode_report = encode_report if term_state is None else encode_ack
        self._reported_offset, self._unsent = -1, b""
        self._divergence: Divergence | None = None
        self._has_reseeded = False
        self._logged_reason = ""

    @property
    def end_offset(self) -> PhysicalOffset:
        """End of the whole records here."""
        return self._writer.whole_offset

    @property
    def safe_offset(self) -> PhysicalOffset:
        """End of the records that this slave may report."""
        whole = self._writer.whole_offset
        return whole if self._durable is None else min(whole, self._durable.value)

    async def run(self) -> None:
        """Follow until cancelled."""
        pause_s = FIRST_RETRY_S
        while True:
            began_s, end = trio.current_time(), self.end_offset
            was_well = False
            try:
                await self._fetch_once()
            except (RmqError, OSError, trio.BrokenResourceError) as error:
                lasted_s = trio.current_time() - began_s
                has_grown = self.end_offset > end or lasted_s > STABLE_S
                was_well = self.is_following and has_grown
                self._record_end(error, is_new=was_well)
            finally:
                self.is_following = False
                self._writer.rewind()
            pause_s = FIRST_RETRY_S if was_well else min(2 * pause_s, RETRY_S)
            await trio.sleep(pause_s)

    def _record_end(self, error: Exception, *, is_new: bool) -> None:
        """Record why the connection ended; log each reason once."""
        text = str(error)
        if isinstance(error, Diverged) and not isinstance(error, UnresolvedDivergence):
            self.is_copy = False
            text = f"this log is not the beginning of the master's: {error}"
        where = f"master {self.master}: " if self.master else ""
        what = where + NUMBERS.sub("", text)  # ends of logs that grow
        if is_new or self._logged_reason != what:
            logger.warning("%s%s", where, Foreign(text, 400))
        self.state, self._logged_reason = where + text, what

    async def _fetch_once(self) -> None:
        self.master = await self._source.find()
        if not self.master:
            raise ConnectionEnded(
                "no master is known; name servers have none for this group"
            )
        tail = self._writer.tail()
        if self._term_state is None:
            if tail is not None and await self._has_surely_diverged(*tail):
                await self._resolve_divergence(
                    "the master does not have the end of this log"
                )
        elif await self._has_cut_by_epochs(self._term_state):
            return
        overlap = await self._first_overlap()
        try:
            async with await self._connect() as link:
                rest = await self._send_handshake(link)
                await self._fetch(link, overlap, rest)
        except Diverged as error:
            if tail is None or self.is_following:
                raise
            await self._resolve_divergence(
                f"this log is not the beginning of the master's: {error}"
            )

    async def _connect(self) -> Link:
        return await connect(self.master, self._tls)

    async def _send_handshake(self, link: Link) -> LineageReader:
        """Return the master's answer to a handshake, if this group has handshakes."""
        if self._term_state is None:
            return LineageReader()
        return await send_handshake(link, self._term_state.own)

    async def _has_cut_by_epochs(self, control: TermState) -> bool:
        """Truncate the log at the divergence, which epochs or bytes show: see
        `epochs.py`.
        """
        bounds = await self._source.find_bounds()
        async with await self._connect() as link:
            lineage = (await self._send_handshake(link)).lineage
        last = lineage.epochs[-1].number if lineage.epochs else 0
        if last != control.epoch and not bounds.serves_records:
            raise ConnectionEnded(
                f"the master's log is in epoch {last}, the controller in "
                f"{control.epoch}"
            )
        end = self._writer.whole_offset
        point = control.divergence_point(end, lineage)
        if point is None or not 0 < point < end or self._cut is None:
            return False
        self._refuse_below_confirmed(point)
        if self._writer.ends_record(point):
            await self._cut_log(point, self._cut)
        else:
            await self._resolve_divergence(
                f"by their epochs the logs differ from offset {point} on, within a "
                "record"
            )
        return True

    def _refuse_below_confirmed(self, point: PhysicalOffset) -> None:
        """Truncate no bytes that the group has confirmed, even if the master lacks
        them: each member of the sync state set has these bytes. So the log of this
        master is damaged, or an operator has chosen this master.
        """
        confirmed = self._writer.confirmed_offset
        if point < confirmed and not self._config.may_discard:
            self.is_copy = False
            raise UnresolvedDivergence(
                point,
                f"the logs differ from offset {point} on, and the group has confirmed "
                f"this log up to {confirmed}: the master has lost messages. Make this "
                f"broker the master, or set {KEY} here: this broker then truncates "
                "them and saves them in cut/",
            )

    async def _first_overlap(self) -> Overlap:
        """Return the bytes that the master must send first."""
        tail = self._writer.tail()
        if self._term_state is not None:
            return Overlap(tail, names_first_byte=True)
        if tail is not None:
            return Overlap(tail)
        try:
            oldest = (await self._source.find_bounds()).oldest
        except PeerError:
            if not self._config.ha_master_address:
                raise
            oldest = 0  # without a name server there is no address to ask
        return Overlap(None, oldest)

    async def _fetch(
        self, link: Link, overlap: Overlap, handshake: LineageReader
    ) -> None:
        self._reported_offset, self._unsent = -1, b""
        self.state = f"comparing logs with the master {self.master}"
        self._send_report(link, PhysicalOffset(overlap.report))
        if overlap.is_proven:
            self._begin_following()
        ended: Exception = ConnectionEnded("it ended")
        async with trio.open_nursery() as nursery:
            if self._durable is not None:
                nursery.start_soon(self._report_durable, link, self._durable)
            nursery.start_soon(self._report_regularly, link)
            try:
                await self._receive(link, overlap, handshake.rest)
            except (RmqError, OSError) as error:
                ended = error
            nursery.cancel_scope.cancel()
        raise ended

    def _begin_following(self) -> None:
        self.is_following = self.is_copy = True
        self._on_following()
        self.state = f"following {self.master}"
        logger.info("following the master %s from %d", self.master, self.end_offset)

    # -- what comes

    async def _receive(self, link: Link, overlap: Overlap, first: bytes) -> None:
        reader = FrameReader() if self._term_state is None else PartReader()
        reader.feed(memoryview(first))
        buffer = memoryview(bytearray(RECEIVE_SIZE))
        silence_s = self._config.ha_silence_limit_ms / 1000
        count = 1
        with trio.CancelScope() as scope:
            while count:
                scope.deadline = trio.current_time() + silence_s
                count = await link.receive_into(buffer)
                self.last_read_ms = self._writer.clock.now_ms()
                self.rate.add(count)
                try:
                    pieces = reader.feed(buffer[:count])
                except RemoteProtocolError as error:
                    raise ConnectionEnded(f"it sent {error}") from error
                for piece in pieces:
                    if self._term_state is not None and isinstance(piece, Part):
                        await self._append_part(piece, overlap, self._term_state)
                    else:
                        await self._append_piece(piece[0], piece[1], overlap)
                self._on_append()
                self._report_if_grown(link)
        if scope.cancelled_caught:
            raise ConnectionEnded(f"the master was silent for {silence_s:g} s")
        if self.is_following:
            raise ConnectionEnded("the master closed the connection")
        raise ConnectionEnded(
            await self._with_bounds("the master closed the connection")
        )

    async def _append_part(
        self, part: Part, overlap: Overlap, control: TermState
    ) -> None:
        """Append bytes of one epoch; readers see the log up to the confirmed offset."""
        grows = part.offset + len(part.data) > self._writer.received_offset
        if part.data and grows and overlap.is_proven:
            control.enter_epoch(part.epoch)
        await self._append_piece(part.offset, part.data, overlap)
        if self.is_following:
            control.advance_visible(self.safe_offset, part.confirmed)

    async def _append_piece(
        self, offset: int, piece: memoryview, overlap: Overlap
    ) -> None:
        if not piece:
            if not overlap.is_proven:
                what = "the master does not have the last record of this log"
                raise ConnectionEnded(await self._with_bounds(what))
            return
        offset, new = overlap.skip_equal(PhysicalOffset(offset), piece)
        if overlap.is_proven and not self.is_following:
            self._begin_following()
        self._writer.append(PhysicalOffset(offset), new)

    async def _with_bounds(self, what: str) -> str:
        """Return `what` with the bounds of the two logs."""
        try:
            bounds = await self._source.find_bounds()
        except PeerError as error:
            return f"{what}; the bounds of the master's log are unknown: {error}"
        end = self._writer.whole_offset
        return (
            f"{what}; the master's log is from {bounds.oldest} to {bounds.end}, "
            f"this log ends at {end}"
        )

    # -- where the logs differ

    async def _has_surely_diverged(self, start: PhysicalOffset, data: bytes) -> bool:
        """Whether the master is known not to have the last record of this log.

        Java counts every report as an acknowledgement, also the report that asks for
        the last record.  So this slave first asks a Java master for the record itself.
        """
        try:
            bounds = await self._source.find_bounds()
            if bounds.end < start + len(data) or start < bounds.oldest:
                return True
            if not bounds.serves_records:
                return False
            record = await self._source.fetch_record(start)
        except PeerError:
            return False  # a comparison of the logs decides
        return record is None or not data.startswith(record)

    async def _resolve_divergence(self, what: str) -> None:
        """Find where the logs diverge, and truncate this log if that is allowed.

        UnresolvedDivergence with the reason if it is not allowed.
        """
        try:
            fork = await self._find_divergence()
        except PeerError as error:
            self.is_copy = False
            raise UnresolvedDivergence(
                PhysicalOffset(-1),
                f"{what}; the first different offset is unknown: {error}",
            ) from error
        if fork.offset == fork.end:
            return  # the logs are equal; the master had not sent its record
        self.is_copy &= fork.offset == fork.bounds.end
        if self._term_state is not None:
            self._refuse_below_confirmed(PhysicalOffset(max(fork.offset, 0)))
        try:
            is_promised = await self._source.awaits_slaves()
        except PeerError:
            is_promised = True  # it is not known
        # with a term, the controller has decided which log is right
        may_discard = self._config.may_discard or self._term_state is not None
        may_reseed = self._config.may_reseed and not self._has_reseeded
        refusal = fork.cut_refusal(is_promised=is_promised, may_discard=may_discard)
        is_reseeded = fork.must_reseed(may_reseed=may_reseed, may_discard=may_discard)
        if is_reseeded and self._cut is not None:
            await self._reseed_log(fork, self._cut)
            return
        if refusal or self._cut is None:
            text = (
                refusal
                or f"the logs differ from offset {fork.offset} on, and this broker may "
                "not truncate its log"
            )
            raise UnresolvedDivergence(fork.offset, text)
        await self._cut_log(fork.offset, self._cut)

    async def _cut_log(self, end: PhysicalOffset, cut: Cut) -> None:
        """Truncate this log at the offset where it diverges from the master's log."""
        logger.warning(
            "the logs of master %s and of this broker differ from offset %d on: "
            "truncating %d bytes here",
            Foreign(self.master),
            end,
            self._writer.whole_offset - end,
        )
        self.state = f"truncating this log to {end}"
        self._divergence = None
        for sentence in await cut(end):
            logger.warning("%s", sentence)

    async def _reseed_log(self, fork: Divergence, cut: Cut) -> None:
        """Move the whole log to `aside/`; only once in a run, because it needs the disk
        space of a log.
        """
        self._divergence, self.is_copy = None, False
        logger.warning(
            "the log of this broker ends at %d and has no record of the log of master "
            "%s, %d to %d: moving it to aside/ and beginning with an empty log",
            fork.end,
            Foreign(self.master),
            fork.bounds.oldest,
            fork.bounds.end,
        )
        self.state = "moving this log to aside/, to begin with an empty one"
        for sentence in await cut(NO_RECORD):
            logger.warning("%s", sentence)
        self._has_reseeded = True

    async def _find_divergence(self) -> Divergence:
        """Compare records with the master's records: a binary search in each file."""
        bounds = await self._source.find_bounds()
        end = self._writer.whole_offset
        known = self._divergence
        if known is not None and known.end == end and known.is_still_valid(bounds):
            return known._replace(bounds=bounds)
        searched = min(self._config.cut_limit, end)
        self.state = f"searching where this log differs from the log of {self.master}"
        records = await in_thread(
            partial(self._writer.find_records, PhysicalOffset(end - searched))
        )
        search = count_equal(len(records))
        try:
            number = next(search)
            while True:
                offset, size = records[number]
                is_equal = await self._is_on_master(
                    bounds, PhysicalOffset(offset), size
                )
                number = search.send(is_equal)
        except StopIteration as found:
            count = found.value
        offset = sum(records[count - 1]) if count else -1
        self._divergence = Divergence(PhysicalOffset(offset), end, bounds, searched)
        return self._divergence

    async def _is_on_master(
        self, bounds: LogBounds, offset: PhysicalOffset, size: int
    ) -> bool:
        """Whether the master has this log's record at the offset."""
        if not bounds.oldest <= offset <= bounds.end - size:
            return False
        record = self._writer.read(offset, size)
        if bounds.serves_records:
            return await self._source.fetch_record(offset) == record
        is_controlled = self._term_state is not None
        overlap = Overlap((offset, record), names_first_byte=is_controlled)
        async with await self._connect() as link:
            await self._send_handshake(link)
            await link.send_all(self._encode_report(PhysicalOffset(overlap.report)))
            reader = PartReader() if is_controlled else FrameReader()
            with trio.move_on_after(CONNECT_TIMEOUT_S):
                while data := await link.receive_some(RECEIVE_SIZE):
                    try:
                        for piece in reader.feed(memoryview(data)):
                            overlap.skip_equal(PhysicalOffset(piece[0]), piece[1])
                    except Diverged:
                        return False
                    if overlap.is_proven:
                        return True
        raise ConnectionEnded(
            f"the master does not send the record at {offset}, which its log should "
            "have"
        )

    # -- what goes

    def _send_report(self, link: Link, offset: PhysicalOffset) -> None:
        """Send a report; the receiving task meets an error of the connection.

        The report is sent at once, without trio, because a sender waits for it. If the
        socket has no room for the whole report, the next report completes it. Until
        then no other report is sent.
        """
        self._reported_offset = max(self._reported_offset, offset)
        self.last_write_ms = self._writer.clock.now_ms()
        rest, report = (
            self._unsent,
            self._encode_report(PhysicalOffset(self._reported_offset)),
        )
        with suppress(OSError):
            self._unsent = rest[link.send_now(rest) :] if rest else b""
            if not self._unsent:
                self._unsent = report[link.send_now(report) :]

    def _report_if_grown(self, link: Link) -> None:
        if self.is_following and self.safe_offset > self._reported_offset:
            self._send_report(link, self.safe_offset)

    async def _report_durable(self, link: Link, durable: Watermark) -> None:
        """Report the durable offset each time that it grows."""
        descriptor = durable.subscribe()
        try:
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                os.eventfd_read(descriptor)
                self._report_if_grown(link)
                if self.is_following and self._term_state is not None:
                    self._term_state.advance_visible(self.safe_offset)
                    self._on_append()
        finally:
            durable.unsubscribe(descriptor)

    async def _report_regularly(self, link: Link) -> None:
        interval_s = self._config.ha_heartbeat_interval_ms / 1000
        while True:
            await trio.sleep(interval_s)
            # before the proof the master would count a second report, and bytes that
            # are not safe yet
            if self.is_following and self._reported_offset <= max(
                self.safe_offset, WHOLE_LOG
            ):
                self._send_report(link, PhysicalOffset(self._reported_offset))
