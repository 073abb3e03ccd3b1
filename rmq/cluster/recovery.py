"""TakeBack: a SYNC_MASTER gets from its slaves what it has lost, before it opens.

A power cut takes from a master what its disk did not have, also messages that its
slaves had, and that it therefore acknowledged.  So before it takes messages it asks the
registered brokers of its group where their logs end.  If one is longer, and its own log
is the beginning of that one, it follows that slave until it has everything.  Every
broker serves its log, Java's slaves, too.

Otherwise the two logs would part: the slave could not follow, and what it alone has
would be lost to consumers.
"""

import logging
from collections.abc import Mapping
from functools import partial

import trio

from rmq.cluster.config import RecoverFromReplicas, ReplicationConfig
from rmq.cluster.directory import Ask, group_addresses
from rmq.cluster.fetcher import Replica
from rmq.cluster.link_tls import LinkTls
from rmq.cluster.master_requests import RemoteBroker
from rmq.config.broker import BrokerConfig
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign
from rmq.core.threads import in_thread
from rmq.store.message_store import MessageStore
from rmq.store.replica_writer import ReplicaWriter

logger = logging.getLogger(__name__)

MASTER_ID = 0
PROVEN_LIMIT_S = 10.0
"""How long a slave may need to send the end of this log again."""

PROGRESS_LIMIT_S = 60.0
"""How long nothing may come from it."""

LOOK_S = 0.05
AGAIN_S = 5.0


class SlaveUpstream(RemoteBroker):
    """A slave whose log a master follows for a while."""

    ha_address = ""

    async def find(self) -> str:
        """Return where it serves its log."""
        return self.ha_address


class TakeBack:
    """What a start does before the store takes messages."""

    def __init__(
        self,
        config: BrokerConfig,
        replication: ReplicationConfig,
        name_servers: tuple[str, ...],
        tls: LinkTls | None = None,
    ) -> None:
        self._config = config
        self._tls = tls
        self._replication = replication
        self._name_servers = name_servers

    @property
    def _how(self) -> RecoverFromReplicas:
        return self._replication.recover_from_replicas

    async def run(self, store: MessageStore, ask: Ask, address: str) -> None:
        """Take back what there is; `store`, which was opened as a copy, opens then.

        `address` is this broker's own.  With REQUIRED only a success ends it.
        """
        while problem := await self._attempt(store, ask, address):
            if self._how is not RecoverFromReplicas.REQUIRED:
                logger.warning("%s; this broker opens without", Foreign(problem, 400))
                break
            logger.warning("%s; this broker stays closed", Foreign(problem, 400))
            await trio.sleep(AGAIN_S)
        store.become_master()

    async def _attempt(self, store: MessageStore, ask: Ask, address: str) -> str:
        """Return why something may be missing; empty if all is here."""
        try:
            members = await group_addresses(ask, self._name_servers, self._config)
        except PeerError as error:
            return f"nobody can say which slaves there are: {error}"
        members = {id_: at for id_, at in members.items() if at != address}
        ends, problem = await self._ends_of(members, ask)
        wanted = self._replication.in_sync_replicas - 1
        if len(ends) < wanted and not problem:
            problem = f"{len(ends)} of {wanted} slaves are registered"
        for upstream in sorted(ends, key=lambda each: -ends[each]):
            if ends[upstream] > store.log.end_offset:
                problem = await self._follow(store, upstream, ends[upstream]) or problem
        return problem

    async def _ends_of(
        self, members: Mapping[int, str], ask: Ask
    ) -> tuple[dict[SlaveUpstream, int], str]:
        """Ask where the logs of the slaves end; also why one does not say it."""
        ends: dict[SlaveUpstream, int] = {}
        problem = ""
        for broker_id, address in members.items():
            if broker_id == MASTER_ID:
                problem = f"{address} is registered as the master of this group"
                continue
            upstream = SlaveUpstream(address, ask)
            try:
                bounds = await upstream.bounds()
                upstream.ha_address = await upstream.log_address()
                ends[upstream] = bounds.end
            except PeerError as error:
                problem = (
                    f"the slave {address} does not say where its log ends: {error}"
                )
        return ends, problem

    async def _follow(
        self, store: MessageStore, upstream: SlaveUpstream, end: int
    ) -> str:
        """Get a slave's log up to `end`; return why not, empty if it is here."""
        began = store.log.end_offset
        logger.warning(
            "the log of this master ends at %d, that of its slave %s at %d: taking "
            "back what this one lost",
            began,
            Foreign(upstream.address),
            end,
        )
        writer = ReplicaWriter(store)
        replica = Replica(
            self._replication,
            writer,
            upstream,
            on_append=lambda: None,
            tls=self._tls,
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
        logger.warning("took back %d bytes of the log", store.log.end_offset - began)
        return ""
