"""Cleaning of mappings: removes parts of logical queues that are no longer needed.

The cleaning runs every 5 minutes at the hours of `deleteWhen`. It removes a part from
the mapping when the broker of the part has no more messages of this part. It also
removes a queue that this broker led before the last two moves, because the leader's
mapping no longer depends on this broker's mapping. Known in Java as
`TopicQueueMappingCleanService`.
"""

import logging
import time
from typing import Final

import trio

from rmq.plugin import BrokerContext, Foreign, PeerError, RequestRejected
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.bodies.queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingInfo,
)
from rmq.protocol.bodies.topics import (
    TopicConfigAndQueueMapping,
    TopicOffset,
    TopicStatsTable,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq_plugins.static.peers import Peers

logger = logging.getLogger(__name__)

PERIOD_S: Final = 300.0


class MappingCleaner:
    """Removes empty parts and moved queues from the mappings of this broker."""

    def __init__(self, broker: BrokerContext, peers: Peers) -> None:
        self._mappings = broker.queue_mappings
        self._name_servers = broker.name_servers
        self._messages = broker.messages
        self._store_config = broker.store_config
        self._clock = broker.clock
        self._peers = peers

    async def run(self) -> None:
        """Clean at the hours of `deleteWhen`."""
        while True:
            await trio.sleep(PERIOD_S)
            hour = time.localtime(self._clock.now_ms() / 1_000).tm_hour
            if hour in self._store_config.delete_hour_set():
                await self.clean_mappings()

    async def clean_mappings(self) -> None:
        """Clean the mappings of all topics now."""
        for name, mapping in self._mappings.all().items():
            for job in self._drop_empty_parts, self._drop_queues_moved_twice:
                try:
                    await job(name, mapping)
                except (PeerError, RequestRejected) as error:
                    logger.info(
                        "cannot clean the mapping of %s: %s",
                        Foreign(name),
                        Foreign(error),
                    )

    async def _drop_empty_parts(
        self, name: str, mapping: TopicQueueMappingDetail
    ) -> None:
        """Remove the empty first part of each queue that this broker leads."""
        stats: dict[str, TopicStatsTable] = {}
        gone = set()
        for queue_id, parts in mapping.hosted_queues.items():
            if mapping.leader_of(queue_id) is None or len(parts) < 2:
                continue
            first, second = parts[:2]
            if second.is_decided and await self._is_empty(name, mapping, first, stats):
                gone.add(queue_id)
        if gone and self._mappings.get(name) is mapping:
            self._mappings.drop(name, gone, first_part=True)

    async def _is_empty(
        self,
        name: str,
        mapping: TopicQueueMappingDetail,
        part: LogicQueueMappingItem,
        stats: dict[str, TopicStatsTable],
    ) -> bool:
        """Return whether a part has no messages; `stats` caches answers of brokers."""
        if part.bname == mapping.bname:
            where = name, part.queue_id
            return self._messages.min_offset(*where) == self._messages.max_offset(
                *where
            )
        if part.bname not in stats:
            fields = {"topic": name, "lo": "false", "bname": part.bname}
            code = RequestCode.GET_TOPIC_STATS_INFO
            answer = await self._peers.ask_broker(part.bname, code, fields)
            if answer.code != ResponseCode.SUCCESS:
                raise RequestRejected(answer.code, str(answer.remark))
            stats[part.bname] = TopicStatsTable.decode(answer.body)
        queue = MessageQueue(topic=name, broker_name=part.bname, queue_id=part.queue_id)
        found: TopicOffset | None = stats[part.bname].offset_table.get(queue)
        return found is not None and (
            found.max_offset == found.min_offset or found.max_offset == 0
        )

    async def _drop_queues_moved_twice(
        self, name: str, mapping: TopicQueueMappingDetail
    ) -> None:
        """Remove queues whose leader is neither this broker nor the leader in this
        mapping.
        """
        known = {
            queue_id: parts[-1].bname
            for queue_id, parts in mapping.hosted_queues.items()
            if parts and parts[-1].bname != mapping.bname
        }
        if not known:
            return
        route = await self._name_servers.directory.route(name)
        registered = route.topic_queue_mapping_by_broker or {}
        leaders = _leaders_by_queue(
            [TopicQueueMappingInfo.from_value(each) for each in registered.values()]
        )
        gone = set()
        for queue_id, before in known.items():
            leader = leaders.get(queue_id, before)
            if leader != before and await self._is_leader(leader, queue_id, mapping):
                gone.add(queue_id)
        if gone and self._mappings.get(name) is mapping:
            self._mappings.drop(name, gone, first_part=False)

    async def _is_leader(
        self, broker_name: str, queue_id: int, mapping: TopicQueueMappingDetail
    ) -> bool:
        """Return whether a broker leads a queue in the epoch of a mapping."""
        fields = {"topic": mapping.topic, "lo": "true", "bname": broker_name}
        answer = await self._peers.ask_broker(
            broker_name, RequestCode.GET_TOPIC_CONFIG, fields
        )
        if answer.code != ResponseCode.SUCCESS:
            return False
        theirs = TopicConfigAndQueueMapping.decode(answer.body).mapping_detail
        return (
            theirs is not None
            and theirs.bname == broker_name
            and theirs.epoch == mapping.epoch
            and theirs.total_queues == mapping.total_queues
            and theirs.leader_of(queue_id) is not None
        )


def _leaders_by_queue(registered: list[TopicQueueMappingInfo]) -> dict[int, str]:
    """Return the brokers of the leaders by queue; the newest epoch decides."""
    by_age = sorted(registered, key=lambda each: each.epoch)
    return {queue_id: each.bname for each in by_age for queue_id in each.curr_id_map}
