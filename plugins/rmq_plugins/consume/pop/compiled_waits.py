"""CompiledWaits: POPs and notifications that wait in compiled code.

Python sets the limits, and reports messages that it stores itself and messages that
become visible later. One task wakes the reactor at deadlines, and continues the
requests that compiled code has returned: among the `HeldPops`, if they find nothing.
"""

from collections.abc import Callable, Mapping

import trio

from rmq.plugin import Alarm, BrokerContext, Connection, QueueKey
from rmq.plugin.native import NotificationPath, PopPath, ReturnedPull
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode
from rmq_plugins.consume.held_pops import MAX_POLL_MS, HeldPop, HeldPops
from rmq_plugins.consume.pop.native import NativePops

Prepare = Callable[[Command, Connection], HeldPop]
"""Returns a request in the form in which `HeldPops` holds it."""


class CompiledWaits:
    """The requests of both kinds that wait in compiled code."""

    def __init__(
        self,
        broker: BrokerContext,
        held: HeldPops,
        native: NativePops,
        prepare_pop: Prepare,
        prepare_notification: Prepare,
    ) -> None:
        self._broker = broker
        self._held = held
        self._native = native
        self._kinds: list[tuple[PopPath | NotificationPath, Prepare]] = [
            (native.path, prepare_pop),
            (native.notices, prepare_notification),
        ]
        self._now_ms = broker.clock.steady_ms
        self.alarm = Alarm(self._now_ms)
        self.set_limits()

    def set_limits(self) -> None:
        """Limit the requests of each kind as `HeldPops` limits those of its own."""
        config = self._broker.config
        for path, _ in self._kinds:
            path.held.set_limits(
                total=config.max_pop_polling_size,
                per_connection=config.max_pop_polling_size,
                per_view=config.pop_polling_size + 1,
                suspend_ms=MAX_POLL_MS,
            )

    def on_arrivals(self, touched: Mapping[QueueKey, int]) -> None:
        """Wake the requests for topics whose messages are visible now."""
        if any(path.held.waiting for path, _ in self._kinds):
            self._native.report_arrivals({topic for topic, _ in touched})

    def drop(self, connection: Connection) -> None:
        """Remove the requests of a closed connection.

        The caller of a call of gRPC has the token of a connection that stays open.
        """
        if connection.is_inner:
            return
        for path, _ in self._kinds:
            path.held.drop_connection(connection.token)

    def end_all(self) -> None:
        """Answer every request and hold no more, because the broker stops."""
        for path, _ in self._kinds:
            path.end_all(self._now_ms())
        self.resume_returned()

    async def run(self) -> None:
        """End the requests whose deadlines pass, and serve the requests that compiled
        code has returned, until cancelled.
        """
        while True:
            await self.alarm.wait()
            self.sweep()
            for returned, prepare in self._take_returned():
                self._resume(returned, prepare)
                await self._broker.next_turn()

    def sweep(self) -> None:
        """Let a poll end the requests whose deadlines have passed."""
        for path, _ in self._kinds:
            left_ms = path.held.next_deadline(int(trio.current_time() * 1_000))
            if left_ms >= 0:
                self.alarm.wake_at(self._now_ms() + left_ms)
        self._broker.poll_soon()  # returned calls of gRPC are events of its wire

    def resume_returned(self) -> None:
        """Continue all requests that compiled code has returned."""
        for returned, prepare in self._take_returned():
            self._resume(returned, prepare)

    def _take_returned(self) -> list[tuple[ReturnedPull, Prepare]]:
        return [
            (returned, prepare)
            for path, prepare in self._kinds
            for returned in path.held.take_returned()
        ]

    def _resume(self, returned: ReturnedPull, prepare: Prepare) -> None:
        """Run a request that compiled code has returned."""
        request = decode(returned.frame)
        connection = self._broker.connection_of(returned.token)
        if connection is not None:
            pop = prepare(request, connection)
            outcome = pop.run(True)
            if not isinstance(outcome, Command):
                if returned.left_ms and self._held.hold_again(pop, returned.left_ms):
                    return
                outcome = outcome(ResponseCode.POLLING_TIMEOUT)
            connection.send_nowait(outcome)
        fields = request.ext_fields  # others may have the messages that are left
        self._native.wake_waiting(fields["topic"], fields["consumerGroup"])
