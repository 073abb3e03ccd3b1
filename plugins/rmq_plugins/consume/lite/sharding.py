"""Sharding: finds the broker to which proxies send the messages of a lite topic.

A proxy chooses by consistent hashing of the name over the write queues of the parent
topic, in the order of brokers. Only tools query this, because a broker accepts
subscriptions of every lite topic.
Known in Java as `LiteShardingImpl`.
"""

from typing import Final

from rmq.plugin import PERM_WRITE, BrokerContext, PeerError
from rmq.protocol.consistent_hash import choose_bucket

_MASTER: Final = 0


class Sharding:
    """Finds the brokers of a parent topic by its route in the name servers."""

    def __init__(self, broker: BrokerContext) -> None:
        self._directory = broker.name_servers.directory
        self._own_name = broker.config.broker_name

    async def is_here(self, parent: str, lite: str) -> bool:
        """Whether proxies send a lite topic to this broker; True without a route."""
        try:
            route = await self._directory.route(parent)
        except PeerError:
            return True
        masters = {
            each.broker_name
            for each in route.broker_datas
            if _MASTER in each.broker_addrs
        }
        queues = [
            data.broker_name
            for data in sorted(
                route.queue_datas, key=lambda each: each.broker_name or ""
            )
            if data.perm & PERM_WRITE and data.broker_name in masters
            for _ in range(data.write_queue_nums)
        ]
        if not queues:
            return True
        return queues[choose_bucket(lite, len(queues))] == self._own_name
