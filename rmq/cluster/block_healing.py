"""BlockHealer: gets the bytes of bad blocks from other brokers, while the broker runs.

A reader, a link or the scrub has found a block of the log with other bytes than were
written (`store/log_digests.py`). The healer reads the block from the HA port of each
other broker, as a slave does. The healer accepts only bytes that match the digest of
the block. So it need not trust a peer, and makes no other comparison.
"""

import logging
from typing import TYPE_CHECKING, Final

import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.healing import Peers
from rmq.cluster.peer_log import PeerLog
from rmq.core.errors import RmqError
from rmq.core.threads import in_thread
from rmq.store.log_digests import BadBlock, LogDigests

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""Pause before the peers are asked again."""

LONG_S: Final = 60.0
"""Pause when readers no longer wait for the bytes."""


class BlockHealer:
    """Heals the blocks of one log."""

    def __init__(
        self,
        config: ReplicationConfig,
        digests: LogDigests,
        peers: Peers,
        own_id: int | None,
        tls: "LinkTls | None" = None,
    ) -> None:
        """`own_id` is the id of this broker in a group with a controller, or None."""
        self._config = config
        self._digests = digests
        self._peers = peers
        self._own_id = own_id
        self._tls = tls

    async def heal_all(self) -> None:
        """Return when no block is bad."""
        while self._digests.bad:
            for block in list(self._digests.bad.values()):
                begun_s = trio.current_time()
                block.problem = await self._heal_block(block)
                least_s = (block.end - block.begin) / self._config.heal_bytes_per_s
                await trio.sleep_until(begun_s + least_s)
            blocks = list(self._digests.bad.values())
            if blocks:
                is_hopeless = all(map(self._digests.is_hopeless, blocks))
                await trio.sleep(LONG_S if is_hopeless else AGAIN_S)

    async def _heal_block(self, block: BadBlock) -> str:
        """Heal one block; return the reason why no broker had its bytes, empty after a
        success.
        """
        problems = []
        for address in await self._peers.find_addresses():
            try:
                data = await self.read_block(address, block)
                is_healed = await in_thread(self._digests.repair, block.begin, data)
            except (RmqError, OSError, trio.BrokenResourceError) as error:
                problems.append(f"{address}: {error}")
                continue
            if is_healed:
                self._digests.end_repair(block, address)
                return ""
            problems.append(
                f"{address} has {len(data)} bytes that do not match the digest"
            )
        return "; ".join(problems) or "no other broker of this group is known"

    async def read_block(self, address: str, block: BadBlock) -> bytes:
        """Return the bytes that a broker has in the range of a block."""
        ha_address = await self._peers.find_log_address(address)
        rate = self._config.heal_bytes_per_s
        peer = PeerLog(ha_address, self._own_id, self._tls, bytes_per_s=rate)
        return await peer.read_bytes(block.begin, block.end - block.begin)
