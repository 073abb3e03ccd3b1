"""ReplicaRecovery: a SYNC_MASTER recovers lost records from its slaves before it opens.

In a power cut a master loses the records that were not on its disk. Its slaves may have
these records, so the master may have acknowledged them. Before it accepts messages it
asks the registered brokers of its group where their logs end. If a slave's log is
longer and begins with the master's log, the master fetches from this slave until the
logs are equal. Every broker serves its log, Java's slaves, too.

Without this recovery the two logs would diverge: the slave could not follow, and
consumers would lose the messages that only the slave has.
"""

import logging
from collections.abc import Mapping
from functools import partial

import trio

from rmq.cluster.config import RecoverFromReplicas, ReplicationConfig
from rmq.cluster.directory import Directory
from rmq.cluster.fetcher import ReplicaFetcher
from rmq.cluster.link_tls import LinkTls
from rmq.cluster.remote_broker import RemoteBroker
from rmq.cluster.term_state import TermState
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign
from rmq.core.offsets import PhysicalOffset
from rmq.core.threads import in_thread
from rmq.store.message_store import MessageStore
from rmq.store.replica_writer import ReplicaWriter

logger = logging.getLogger(__name__)

MASTER_ID = 0
PROVEN_LIMIT_S = 10.0
"""Time limit for a slave to send the end of this log again."""

PROGRESS_LIMIT_S = 60.0
"""Time without any bytes after which a slave counts as failed."""

LOOK_S = 0.05
AGAIN_S = 5.0


class SlaveSource(RemoteBroker):
    """A slave whose log a master fetches during its recovery."""

    ha_address = ""

    async def find(self) -> str:
        """Return the address at which the slave serves its log."""
        return self.ha_address


class ReplicaRecovery:
    """The recovery that a start runs before the store accepts messages."""

    def __init__(
        self,
        replication: ReplicationConfig,
        directory: Directory,
        tls: LinkTls | None = None,
    ) -> None:
        self._replication = replication
        self._directory = directory
        self._tls = tls

    @property
    def _recovery_mode(self) -> RecoverFromReplicas:
        return self._replication.recover_from_replicas

    async def run(self, store: MessageStore) -> None:
        """Copy back the messages that slaves have, then open `store`, which was opened
        as a copy.

        With REQUIRED the call returns only after a success.
        """
        while problem := await self._try_recovery(store):
            if self._recovery_mode is not RecoverFromReplicas.REQUIRED:
                logger.warning(
                    "%s; this broker accepts messages without this recovery",
                    Foreign(problem, 400),
                )
                break
            logger.warning(
                "%s; this broker refuses messages until the recovery succeeds",
                Foreign(problem, 400),
            )
            await trio.sleep(AGAIN_S)
        store.become_master()

    async def _try_recovery(self, store: MessageStore) -> str:
        """Return the reason why messages may be missing; empty if the log has all."""
        try:
            members = await self._directory.other_members()
        except PeerError as error:
            return f"the slaves of this group are unknown: {error}"
        ends, problem = await self._find_ends(members)
        wanted = self._replication.in_sync_replicas - 1
        if len(ends) < wanted and not problem:
            problem = f"{len(ends)} of {wanted} slaves are registered"
        for upstream in sorted(ends, key=lambda each: -ends[each]):
            if ends[upstream] > store.log.end_offset:
                end = PhysicalOffset(ends[upstream])
                problem = (
                    await fetch_log(self._replication, store, upstream, end, self._tls)
                    or problem
                )
        return problem

    async def _find_ends(
        self, members: Mapping[int, str]
    ) -> tuple[dict[SlaveSource, int], str]:
        """Return the ends of the slaves' logs, and the reason if one is unknown."""
        ends: dict[SlaveSource, int] = {}
        problem = ""
        for broker_id, address in members.items():
            if broker_id == MASTER_ID:
                problem = f"{address} is registered as the master of this group"
                continue
            upstream = SlaveSource(address, self._directory.send_request)
            try:
                bounds = await upstream.find_bounds()
                upstream.ha_address = await upstream.find_log_address()
                ends[upstream] = bounds.end
            except PeerError as error:
                problem = f"the log end of slave {address} is unknown: {error}"
        return ends, problem


async def fetch_log(
    replication: ReplicationConfig,
    store: MessageStore,
    upstream: SlaveSource,
    end: PhysicalOffset,
    tls: LinkTls | None,
    term_state: TermState | None = None,
) -> str:
    """Fetch a slave's log up to `end`; return the reason of a failure, empty after a
    success.
    """
    began = store.log.end_offset
    logger.warning(
        "the log of this master ends at %d, the log of its slave %s at %d: copying "
        "the lost messages back",
        began,
        Foreign(upstream.address),
        end,
    )
    writer = ReplicaWriter(store)
    replica = ReplicaFetcher(
        replication,
        writer,
        upstream,
        on_append=lambda: None,
        tls=tls,
        term_state=term_state,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replica.run)
        seen = began
        deadline = trio.current_time() + PROVEN_LIMIT_S
        while store.log.end_offset < end and trio.current_time() < deadline:
            await trio.sleep(LOOK_S)
            if store.log.end_offset > seen:
                seen = store.log.end_offset
                deadline = trio.current_time() + PROGRESS_LIMIT_S
        nursery.cancel_scope.cancel()
    writer.rewind()
    if store.log.end_offset < end:
        return (
            f"the slave {upstream.address} has the log up to {end}, this broker "
            f"up to {store.log.end_offset} ({replica.state})"
        )
    await in_thread(partial(store.flush_queues, thorough=True))
    logger.warning("copied %d bytes of the log back", store.log.end_offset - began)
    return ""
