"""Sharding: on which broker senders put a lite topic.

A proxy chooses by consistent hashing of the name over the write queues of the parent
topic, in the order of brokers; see Guava's `Hashing.consistentHash`.  This broker takes
subscriptions of every lite topic, so that only tools ask for it.
Known in Java as `LiteShardingImpl`.
"""

from typing import Final

from rmq.plugin import PERM_WRITE, BrokerContext, PeerError

_MULTIPLIER: Final = 2_862_933_555_777_941_757
_MASK: Final = (1 << 64) - 1
_MASTER: Final = 0


class Sharding:
    """Asks the name servers for the parent topic."""

    def __init__(self, broker: BrokerContext) -> None:
        self._directory = broker.name_servers.directory
        self._own_name = broker.config.broker_name

    async def is_here(self, parent: str, lite: str) -> bool:
        """Whether senders put a lite topic on this broker; yes if nobody knows."""
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


def choose_bucket(name: str, count: int) -> int:
    """Return the number of the queue of a name, by consistent hashing.

    >>> [bucket(f"lite{number}", 8) for number in range(4)]
    [3, 0, 4, 7]
    """
    state = _java_hash(name) & _MASK
    candidate = 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        number = (state >> 33) + 1
        following = int((candidate + 1) / (number / (1 << 31)))
        if number == 1 << 31 or following >= count:  # the first is negative in Java
            return candidate
        candidate = following


def _java_hash(text: str) -> int:
    """Return `String.hashCode`, with its sign."""
    found = 0
    for letter in text:
        found = (31 * found + ord(letter)) & 0xFFFF_FFFF
    return found - (1 << 32) if found >> 31 else found
