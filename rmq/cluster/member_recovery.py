"""MemberRecovery: a master that starts again in its epoch recovers lost records first.

In a group with a controller an election chooses the longest log. But a master that is
back before the controller misses it needs no election. If its machine has restarted,
its disk may have lost records, also records that the disk had confirmed as durable. The
other members of the sync state set have these records, in the same epoch.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Ask
from rmq.cluster.epochs import EpochFile
from rmq.cluster.healing import Peers
from rmq.cluster.identity import GroupPlace
from rmq.cluster.link_tls import LinkTls
from rmq.cluster.peer_log import READER_IDS, PeerLog
from rmq.cluster.recovery import AGAIN_S, SlaveSource, fetch_log
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Handshake, Lineage
from rmq.core.errors import RmqError
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

LINEAGES_LIMIT_S = 10.0
"""Time limit for the other members, whose machines may start at the same time, too."""

ASK_PAUSE_S = 0.2


class MemberRecovery:
    """The recovery of a master that starts again in its epoch."""

    def __init__(
        self,
        replication: ReplicationConfig,
        peers: Peers,
        find_members: Callable[[], Awaitable[list[str]]],
        ask: Ask,
        place: GroupPlace,
        epoch: int,
        tls: LinkTls | None,
        *,
        hold_back: Callable[[], bool],
    ) -> None:
        """`find_members` returns the addresses of the other brokers of the set.

        `epoch` is the master's, as the controller names it. `hold_back` lets the
        controller elect another broker, and returns whether it has done so.
        """
        self._replication = replication
        self._peers = peers
        self._find_members = find_members
        self._ask = ask
        self._place = place
        self._epoch = epoch
        self._tls = tls
        self._hold_back = hold_back

    async def run(self, store: MessageStore) -> None:
        """Copy back the records that other members have, then open `store`, which was
        opened as a copy.
        """
        own = Handshake(READER_IDS + self._place.own_id, is_learner=True)
        epochs = EpochFile(self._place.epoch_path)
        term_state = TermState(own, self._epoch, epochs, Watermark(0))
        while longer := await self._find_longer(store.log.end_offset, term_state):
            end, upstream = longer
            problem = await fetch_log(
                self._replication, store, upstream, end, self._tls, term_state
            )
            if not problem:
                break
            logger.error("%s; this broker does not open its log", Foreign(problem, 400))
            if self._hold_back():
                break
            await trio.sleep(AGAIN_S)
        store.become_master()

    async def _find_longer(
        self, end: PhysicalOffset, term_state: TermState
    ) -> tuple[PhysicalOffset, SlaveSource] | None:
        """Return end and address of the longest log of the epoch; None if no log that
        can be reached is longer than this log.
        """
        found: list[tuple[PhysicalOffset, SlaveSource]] = []

        async def ask_one(address: str) -> None:
            source = SlaveSource(address, self._ask)
            lineage = await self._find_lineage(source)
            last = lineage.epochs[-1].number if lineage.epochs else 0
            if last != self._epoch or lineage.end <= end:
                return
            if end in (0, term_state.divergence_point(end, lineage)):
                found.append((lineage.end, source))

        with trio.move_on_after(LINEAGES_LIMIT_S):
            async with trio.open_nursery() as nursery:
                for address in await self._set_addresses():
                    nursery.start_soon(ask_one, address)
        return max(found, key=lambda each: each[0], default=None)

    async def _set_addresses(self) -> list[str]:
        while True:
            try:
                return await self._find_members()
            except RmqError as error:
                logger.debug("the members of the set: %s", Foreign(error))
                await trio.sleep(ASK_PAUSE_S)

    async def _find_lineage(self, source: SlaveSource) -> Lineage:
        """Return end and epochs of a member's log, when it answers."""
        rate = self._replication.heal_bytes_per_s
        while True:
            try:
                address = await self._peers.find_log_address(source.address)
                own_id = self._place.own_id
                peer = PeerLog(address, own_id, self._tls, bytes_per_s=rate)
                lineage = await peer.find_lineage()
            except (RmqError, OSError, trio.BrokenResourceError) as error:
                logger.debug(
                    "the log of %s: %s", Foreign(source.address), Foreign(error)
                )
                await trio.sleep(ASK_PAUSE_S)
                continue
            assert lineage is not None, "the group has a controller"
            source.ha_address = address
            return lineage
