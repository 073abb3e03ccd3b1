"""LogHealer: replaces the damaged bytes of a log by a peer's bytes, before the store
opens.

A start has found the log damaged and has truncated no bytes. The healer looks for a
broker of the group that has the bytes: first the registered brokers, then the brokers
that were registered before. It reads their logs as a slave does (`peer_log.py`), writes
the missing range (`store/patch.py`), and the start begins again.

A peer's bytes are right if the peer has the same last record before the damage, and the
same first record after the damage. A record has its own offset, its queue offset, its
store time and a checksum, so all records between are equal, too. The new bytes have to
be whole records that lead to the end of the damage. In a group with a controller, two
logs are equal only within their common epochs. If the peer's log has a newer epoch, a
controller has decided for that log. Then bytes of this log after the last common epoch
are not valid. The healer never truncates bytes that the group has confirmed.

While this broker waits for a peer, it serves the log before the damage. So two members
with damage at different offsets heal each other. Crash contract: after a kill the log
is still damaged, and a part of the range may be healed.
"""

import logging
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from rmq._fastpath.log.watermark import Watermark
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Directory
from rmq.cluster.epochs import EpochFile
from rmq.cluster.identity import GroupPlace
from rmq.cluster.known_members import KnownMembers
from rmq.cluster.log_server import LogServer
from rmq.cluster.peer_log import PeerLog
from rmq.cluster.remote_broker import RemoteBroker
from rmq.cluster.term_state import TermState
from rmq.cluster.wire import Handshake, Lineage
from rmq.core.address import HA_PORT_DISTANCE, Address
from rmq.core.errors import PeerError, RmqError
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.store.config import StoreConfig
from rmq.store.cut import CutMark, set_aside
from rmq.store.damage import Damage, LogDamaged, LogFiles
from rmq.store.data_dir import DataDirectory
from rmq.store.message_store import MessageStore
from rmq.store.patch import LogPatch

if TYPE_CHECKING:
    import socket

    from rmq.cluster.link_tls import LinkTls

logger = logging.getLogger(__name__)

AGAIN_S: Final = 1.0
"""Pause before the peers are asked again."""

NEIGHBORS: Final = 4
"""Records on each side of the damage that are compared until one is equal."""

LOOK_AHEAD: Final = 1 << 30
"""Bytes after a healed range that are checked before the store opens again."""

NUMBERS: Final = re.compile(r"\d+")


class Unsuitable(PeerError):
    """A peer lacks the missing bytes, or has another log."""


class Peers(Protocol):
    """The brokers that may have the missing bytes."""

    async def find_addresses(self) -> list[str]:
        """Return the addresses of the other brokers."""

    async def find_log_address(self, address: str) -> str:
        """Return the address at which a broker serves its log."""


class GroupPeers:
    """The other brokers of a group, the registered ones first."""

    def __init__(self, directory: Directory, members: KnownMembers) -> None:
        self._directory = directory
        self._members = members

    async def find_addresses(self) -> list[str]:
        """Return the addresses that name servers name now, or named before."""
        try:
            found = [*(await self._directory.other_members()).values()]
        except PeerError as error:
            logger.debug("the members of the group are unknown: %s", Foreign(error))
            found = []
        found += [each for each in self._members.addresses if each not in found]
        return [each for each in found if each != self._directory.own_address]

    async def find_log_address(self, address: str) -> str:
        """Return the address at which a broker serves its log, even if it serves only
        its log.
        """
        ask = self._directory.send_request
        try:
            return await RemoteBroker(address, ask).find_log_address()
        except PeerError:
            host, port = Address.parse(address)
            return str(Address(host, port + HA_PORT_DISTANCE))


class LogHealer:
    """Heals the log of one broker."""

    def __init__(
        self,
        replication: ReplicationConfig,
        store: StoreConfig,
        peers: Peers,
        listening: "socket.socket | None",
        *,
        place: GroupPlace | None,
        tls: "LinkTls | None" = None,
    ) -> None:
        """`listening` is the port for slaves; `place` is None without a controller."""
        self._replication = replication
        self._data = DataDirectory(store)
        self._files = LogFiles(self._data.log_folders, store.commit_log_file_size)
        self._peers = peers
        self._listening = listening
        self._place = place
        self._tls = tls
        self._patience_s = store.damage_patience_ms / 1_000
        if replication.waits_for_peers or not self._patience_s:
            self._patience_s = math.inf
        self._progress_s = 0.0
        """Time at which the log got its last bytes."""

        self._reached = 0
        """End of the bytes that the range got from peers."""

        self.problem = ""
        """Why the log is not healed; one sentence."""

        self.healed: list[str] = []
        """A sentence for each range that was healed or truncated."""

    async def open(self, open_store: Callable[..., MessageStore]) -> MessageStore:
        """Open the store, after its log has healed if it is damaged.

        Without a controller the log is truncated at the damage if no peer sends bytes
        within `rmq.damagePatienceMs`, unless `rmq.recoverFromReplicas` is REQUIRED.
        """
        store = await self.heal(open_store, self._patience_s)
        return open_store() if store is None else store

    async def heal(
        self, open_store: Callable[..., MessageStore], limit_s: float
    ) -> MessageStore | None:
        """Open the store when its log is whole; None if no peer has the bytes.

        `limit_s` bounds the time without new bytes. The time of recovery and of
        transfers does not count.
        """
        while True:
            try:
                store = open_store(keeps_damage=True)
            except LogDamaged as error:
                damage: Damage | None = error.damage
            else:
                store.recovery.healed += self.healed
                return store
            self._data.acquire()
            try:
                while damage is not None:
                    self._progress_s, self._reached = trio.current_time(), damage.begin
                    following = await self._heal_one(damage, limit_s)
                    if following is damage:
                        return None
                    damage = following
            finally:
                self._data.release()

    async def _heal_one(self, damage: Damage, limit_s: float) -> Damage | None:
        """Heal one range with the first peer that has it; return the next damage.

        It returns the same damage if the log got no bytes for `limit_s`.
        """
        with self._files.whole_part(damage.begin) as log:
            control = None
            if self._place is not None:
                own = Handshake(max(self._place.own_id, 1))
                epochs = EpochFile(self._place.epoch_path)
                control = TermState(own, 0, epochs, Watermark(0))
            server = LogServer(
                self._replication,
                log,
                self._peers.find_addresses,
                tls=self._tls,
                term_state=control,
            )
            async with trio.open_nursery() as nursery:
                if self._listening is not None:
                    nursery.start_soon(server.serve, self._listening)
                following = await self._ask_peers(damage, limit_s)
                nursery.cancel_scope.cancel()
        return following

    async def _ask_peers(self, damage: Damage, limit_s: float) -> Damage | None:
        while True:
            problems = []
            for address in await self._peers.find_addresses():
                try:
                    return await self._heal_from(address, damage)
                except (RmqError, OSError, trio.BrokenResourceError) as error:
                    problems.append(f"{address}: {error}")
            self._log_waiting(damage, problems)
            if trio.current_time() - self._progress_s >= limit_s:
                return damage
            await trio.sleep(AGAIN_S)

    def _log_waiting(self, damage: Damage, problems: list[str]) -> None:
        """Log each reason once for which the log is not healed."""
        text = "; ".join(problems) or "no other broker of this group is known"
        sentence = (
            f"{self._files.folders}: {damage}. No broker of the group has given the "
            f"missing bytes: {text}. This broker asks again, and serves nothing "
            "meanwhile; `rmq store accept-loss` opens the log without them"
        )
        if NUMBERS.sub("", sentence) != NUMBERS.sub("", self.problem):
            logger.error("%s", Foreign(sentence, 1000))
        self.problem = sentence

    async def _heal_from(self, address: str, damage: Damage) -> Damage | None:
        """Copy the bytes of the range that a peer has; return the next damage.
        PeerError or OSError if the peer has no bytes of the range.
        """
        own_id = None if self._place is None else self._place.own_id
        ha_address = await self._peers.find_log_address(address)
        rate = self._replication.heal_bytes_per_s
        peer = PeerLog(ha_address, own_id, self._tls, bytes_per_s=rate)
        equal, is_superseded = self._common_end(damage, await peer.find_lineage())
        if equal <= damage.begin and is_superseded:
            await in_thread(self._mark_cut, equal)
            self._record(
                f"{damage}. The group has other messages after {equal}, as {address} "
                f"reports: this log is truncated there"
            )
            return None
        if equal <= damage.begin:
            raise Unsuitable(f"its log is known to be the same up to {equal} only")
        begin, end = await self._find_equal(peer, damage, equal)
        patch = LogPatch(self._files, self._data.root / "damaged")
        await in_thread(patch.keep, begin, end)

        def write(offset: int, data: memoryview) -> None:
            patch.write(offset, data)
            if offset + len(data) > self._reached:
                self._reached = offset + len(data)
                self._progress_s = trio.current_time()

        count = await peer.read(begin, end, write) - begin
        await in_thread(patch.sync)
        until = damage.promised
        if until - end > LOOK_AHEAD:
            until = end
        following = await in_thread(self._files.find, begin, until, damage.confirmed)
        if following is not None and following.begin <= damage.begin:
            raise Unsuitable(
                f"it sent {count} bytes, which are no records: {following.reason}"
            )
        self._record(f"{damage}. Healed with {count} bytes of {address}")
        return following

    def _record(self, text: str) -> None:
        sentence = f"{self._files.folders}: {text}"
        logger.warning("%s", Foreign(sentence, 400))
        self.healed.append(sentence)

    def _common_end(self, damage: Damage, lineage: Lineage | None) -> tuple[int, bool]:
        """Return the offset up to which a peer's log is equal by its epochs. And
        whether a newer epoch of the peer has replaced the rest of this log.
        """
        if self._place is None or lineage is None:
            return damage.promised, False
        epochs = EpochFile(self._place.epoch_path)
        if not epochs.all_epochs() or not lineage.epochs:
            return min(damage.promised, lineage.end), False
        point = epochs.consistent_point(
            PhysicalOffset(damage.promised), lineage.epochs, lineage.end
        )
        if point is None:
            raise Unsuitable("no epoch of its log is in this log")
        is_newer = lineage.epochs[-1].number > epochs.last_number
        if is_newer and point < damage.confirmed and not self._replication.may_discard:
            raise Unsuitable(
                f"its log differs from offset {point} on, and the group has confirmed "
                f"this log up to {damage.confirmed}: that broker has lost messages"
            )
        return point, is_newer

    async def _find_equal(
        self, peer: PeerLog, damage: Damage, equal: int
    ) -> tuple[int, int]:
        """Return the range to read, with records on both sides that this log and the
        peer's log share. No checksum covers all bytes of a record. So a record that
        differs becomes a part of the range if the record after it is equal.
        """
        end, is_bounded = min(damage.end, equal), self._place is not None
        if end == damage.end and not damage.is_short:
            end = await self._find_equal_after(peer, damage)
            is_bounded = True
        begin, differs = damage.begin, False
        for _ in range(NEIGHBORS if is_bounded else 1):
            record = await in_thread(self._files.record_before, begin)
            if record is None and (differs or not is_bounded):
                raise Unsuitable("this log has no record with which to compare it")
            if (
                record is None
                or await peer.read_bytes(record[0], len(record[1])) == record[1]
            ):
                return begin, end
            begin, differs = record[0], True
        raise Unsuitable(f"it does not have this log's record at {begin}")

    async def _find_equal_after(self, peer: PeerLog, damage: Damage) -> int:
        """Return the offset of the first record after the damage that both logs
        have.
        """
        offset = damage.end
        for _ in range(NEIGHBORS):
            record = await in_thread(self._files.record_after, offset, damage.promised)
            if record is None:
                break
            offset, data = record
            if await peer.read_bytes(offset, len(data)) == data:
                return offset
            offset += len(data)
        raise Unsuitable(f"it does not have this log's record at {damage.end}")

    def _mark_cut(self, end: int) -> None:
        """Let the next start truncate the log at `end`. Before that, the copy of the
        rest is durable.
        """
        for base in self._files.find_bases():
            if base + self._files.file_size <= end:
                continue
            with self._files.open(base) as file:
                set_aside(file, max(0, end - base), self._data.cut, "another epoch")
        self._data.abort.set()  # without the ring, which has records after the end
        self._data.ring.unlink(missing_ok=True)
        CutMark(self._data.root).save(PhysicalOffset(end))
