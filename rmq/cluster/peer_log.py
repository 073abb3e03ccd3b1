"""PeerLog: reads parts of another broker's log over its HA port.

Every broker serves its log there: masters and slaves, of rmq and of Java. A reader
reports the offset at which the log has to begin, as a slave does, and closes the
connection when it has enough. In a group with a controller the reader is a learner, for
which no sender waits, and has a separate id.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from rmq.cluster.link import CONNECT_TIMEOUT_S, connect, send_handshake
from rmq.cluster.wire import (
    FIRST_BYTE,
    WHOLE_LOG,
    FrameReader,
    Handshake,
    Lineage,
    PartReader,
    encode_ack,
    encode_report,
)
from rmq.core.errors import ConnectFailed, RemoteProtocolError
from rmq.core.offsets import PhysicalOffset

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls

RECEIVE_SIZE: Final = 1 << 20
READER_IDS: Final = 1 << 32
"""Ids of readers begin here: a source closes the older of two sessions of one id."""


class PeerLog:
    """The log of the broker at one address."""

    def __init__(
        self,
        ha_address: str,
        own_id: int | None,
        tls: "LinkTls | None" = None,
        *,
        bytes_per_s: int,
    ) -> None:
        """`own_id` is the id of this broker in a group with a controller; None in other
        groups.
        """
        self.ha_address = ha_address
        self._bytes_per_s = bytes_per_s
        self._own = None
        if own_id is not None:
            self._own = Handshake(READER_IDS + own_id, is_learner=True)
        self._tls = tls

    async def find_lineage(self) -> Lineage | None:
        """Return the end and the epochs of the log; None without a controller.

        PeerError or OSError if the peer does not answer.
        """
        if self._own is None:
            return None
        async with await connect(self.ha_address, self._tls) as link:
            return (await send_handshake(link, self._own)).lineage

    async def read_bytes(self, offset: int, size: int) -> bytes:
        """Return bytes of the log, fewer if the peer has no more; see `read`."""
        found = bytearray()
        await self.read(offset, offset + size, lambda _, part: found.extend(part))
        return bytes(found)

    async def read(
        self, begin: int, end: int, take: Callable[[int, memoryview], None]
    ) -> int:
        """Pass the bytes from `begin` to `end` to `take`, in order; return their end.

        The end is smaller if the peer has no more bytes. PeerError or OSError if the
        peer sends other bytes, or does not answer.
        """
        async with await connect(self.ha_address, self._tls) as link:
            first, is_grouped = b"", self._own is not None
            if self._own is not None:
                first = (await send_handshake(link, self._own)).rest
            reached = begin
            if begin == 0 and not is_grouped:
                # a report of 0 would ask for the newest file only
                take(0, memoryview(FIRST_BYTE))
                reached = WHOLE_LOG
            encode = encode_ack if is_grouped else encode_report
            await link.send_all(encode(PhysicalOffset(reached)))
            start, begun_s = reached, trio.current_time()
            reader = PartReader() if is_grouped else FrameReader()
            with trio.move_on_after(CONNECT_TIMEOUT_S) as scope:
                data: bytes | bytearray = first
                while reached < end:
                    for offset, body in _decode_pieces(reader, data):
                        if offset != reached:
                            raise ConnectFailed(
                                f"it sent bytes of {offset} instead of {reached}"
                            )
                        part = body[: end - reached]
                        take(reached, part)
                        reached += len(part)
                        scope.deadline = trio.current_time() + CONNECT_TIMEOUT_S
                        if reached == end:
                            break
                    else:
                        used_s = (reached - start) / self._bytes_per_s
                        await trio.sleep_until(begun_s + used_s)
                        scope.deadline = trio.current_time() + CONNECT_TIMEOUT_S
                        data = await link.receive_some(RECEIVE_SIZE)
                        if not data:
                            break
            return reached


def _decode_pieces(
    reader: FrameReader | PartReader, data: bytes | bytearray
) -> list[tuple[int, memoryview]]:
    """Return offsets and bytes of the log in received bytes; no heartbeats."""
    try:
        pieces = reader.feed(memoryview(data))
    except RemoteProtocolError as error:
        raise ConnectFailed(f"it sent {error}") from error
    return [(piece[0], piece[1]) for piece in pieces if piece[1]]
