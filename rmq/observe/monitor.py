"""Monitor: samples a broker, and keeps the list of its problems.

A sample comes every 10 s. While views are requested, it comes every 2 s. After a client
left a group, samples also come every 2 s, until the monitor knows whether the group has
a consumer. A sample pauses after each 0.3 ms of work, so a broker of any size continues
to serve.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import trio

from rmq.core.errors import RecordDamaged, RequestRejected
from rmq.observe.monitor_state import MonitorState
from rmq.protocol.codes import ResponseCode
from rmq.remoting.turns import TurnTaker

if TYPE_CHECKING:
    from rmq.observe.monitored_broker import MonitoredBroker

SAMPLE_S: Final = 10.0
LOOKED_AT_SAMPLE_S: Final = 2.0


class Monitor(MonitorState):
    """Samples one broker, and computes the views of this broker."""

    _broker: "MonitoredBroker"

    def attach(self, broker: "MonitoredBroker") -> None:
        """Watch this broker."""
        self._broker = broker
        tails = broker.store.queues.tails
        tails.take_unseen(len(broker.store.queues))  # recovery added these
        broker.consumers.on_leave.append(self.departures.add)
        broker.consumers.on_leave.append(lambda *_: self.mark_viewed())
        broker.offsets.on_reset.append(self.progress.mark_reset)
        self.events.attach(broker)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Sample the broker until cancelled; a service of the broker."""
        task_status.started()
        while True:
            is_soon = self.is_viewed or self.has_uncertain_group
            pause_s = LOOKED_AT_SAMPLE_S if is_soon else SAMPLE_S
            with trio.move_on_after(pause_s):
                await self._wanted.wait()
            self._wanted = trio.Event()
            await TurnTaker(self._broker.next_turn).run_each(self._sample())

    def sample(self) -> None:
        """Take a sample at once."""
        for _ in self._sample():
            pass

    def _sample(self) -> Iterator[None]:
        # imported on use: the first sample comes seconds after the start
        from rmq.observe.sampling import sample

        return sample(self._broker, self)

    async def show_view(
        self, name: str, query: Mapping[str, str], require: Callable[[str], object]
    ) -> dict[str, Any]:
        """Return a view; `require` checks the right to each topic."""
        from rmq.observe.views import show_view

        with _rejecting_damage():
            return await show_view(self._broker, name, query, require)

    async def follow_log(
        self, query: Mapping[str, str], may_read: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Return new messages of the log, and events."""
        from rmq.observe.log_follower import follow_log

        with _rejecting_damage():
            return await follow_log(self._broker, query, may_read)


@contextmanager
def _rejecting_damage() -> Iterator[None]:
    """Reject a request for a damaged message with a sentence."""
    try:
        yield
    except RecordDamaged as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
