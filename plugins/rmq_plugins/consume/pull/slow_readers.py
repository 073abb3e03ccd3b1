"""SlowReaders: groups that read far from the end of the log are disabled.

With `disableConsumeIfConsumerReadSlowly` the broker looks every three minutes at the
last pulls of the groups that are online. The broker disables a group whose next message
is more than `consumerFallbehindThreshold` bytes before the end of the log:
`consumeEnable` in its settings becomes false, and a tool has to enable the group again.
"""

import logging
from typing import Final

import trio
from msgspec.structs import replace

from rmq.plugin import BrokerContext, Foreign, QueueOffset

logger = logging.getLogger(__name__)

INTERVAL_S: Final = 180
QUEUES_AT_ONCE: Final = 500


class SlowReaders:
    """Known in Java as `BrokerController.protectBroker`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._config = broker.config
        self._consumers = broker.consumers
        self._groups = broker.groups
        self._log = broker.log
        self._messages = broker.messages
        self._next_turn = broker.next_turn
        self._statistics = broker.statistics

    async def watch(self) -> None:
        """Look regularly until cancelled."""
        while True:
            await trio.sleep(INTERVAL_S)
            if self._config.disable_consume_if_consumer_read_slowly:
                await self.disable_slow_groups()

    async def disable_slow_groups(self) -> None:
        """Disable the groups whose lag in bytes is above the limit."""
        pulls = list(self._statistics.pulled_offsets())
        for number, (group, topic, queue_id, offset) in enumerate(pulls):
            if number % QUEUES_AT_ONCE == QUEUES_AT_ONCE - 1:
                await self._next_turn()
            if self._consumers.group(group) is None:
                continue
            at = self._messages.physical_at(topic, queue_id, QueueOffset(offset))
            lag = self._log.end_offset - at if at >= 0 else 0
            if lag > self._config.consumer_fallbehind_threshold:
                self._disable_group(group, lag)

    def _disable_group(self, group: str, lag: int) -> None:
        settings = self._groups.get(group)
        if settings is None or not settings.consume_enable:
            return
        self._groups.update(replace(settings, consume_enable=False))
        logger.warning(
            "the group %s reads %d bytes before the end of the log: it is disabled, "
            "see disableConsumeIfConsumerReadSlowly",
            Foreign(group),
            lag,
        )
