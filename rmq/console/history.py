"""History: messages in and out of the last five minutes, one number per second.

It samples two counters of the broker and keeps 600 numbers, but no numbers of single
topics.
"""

from collections import deque
from typing import TYPE_CHECKING, Final

import trio

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

SECONDS: Final = 300


class TrafficHistory:
    """Messages in and messages out of each second; only the trio thread uses these
    lists.
    """

    def __init__(self, broker: "BrokerContext") -> None:
        self._broker = broker
        self._last = self._read_totals()
        self.incoming: deque[int] = deque([0] * SECONDS, maxlen=SECONDS)
        self.outgoing: deque[int] = deque([0] * SECONDS, maxlen=SECONDS)

    def _read_totals(self) -> tuple[int, int]:
        broker = self._broker
        put = broker.store.statistics().put_messages
        return put, broker.statistics.messages_out()

    async def run(self) -> None:
        """Take a sample each second until cancelled."""
        while True:
            await trio.sleep(1)
            self.sample()

    def sample(self) -> None:
        """Add the messages that came and went since the last sample."""
        now = self._read_totals()
        self.incoming.append(max(0, now[0] - self._last[0]))
        self.outgoing.append(max(0, now[1] - self._last[1]))
        self._last = now
