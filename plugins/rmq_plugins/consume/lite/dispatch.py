"""LiteDispatch: assigns each lite topic with new messages to one client of each group.

Four causes create an event: an arrival, an ack, the end of an invisible time, and a new
subscription. The lite topic then enters the event set of one client, and a held POP of
this client wakes up. The clients of a group take turns. If the set is full, a full
dispatch checks all lite topics of the client some seconds later. If a client stops
popping, its events go to other clients. Known in Java as `LiteEventDispatcher`.
"""

import heapq
from collections.abc import Iterable
from itertools import islice
from typing import Final

import trio

from rmq.plugin import Alarm, BrokerContext
from rmq_plugins.consume.held_pops import ANY_QUEUE, HeldPops
from rmq_plugins.consume.lite.config import LiteConfig
from rmq_plugins.consume.lite.events import Events
from rmq_plugins.consume.lite.tables import LiteTables

TRIES: Final = 32
"""Maximum number of clients of a group to which one event is offered."""

BLOCKED_MS: Final = 10_000
"""Time for which events go to other clients if possible, after a client did not pop its
events.
"""

WILDCARD_MS: Final = 5_000
"""Delay from a subscription of a wildcard group to a check of all lite topics."""

ABANDONED_MS: Final = 24 * 3_600_000
"""Time without a POP of a lite topic after which the last POP of a group expires."""

TURN_SIZE: Final = 50
"""Number of lite topics that a full dispatch checks in one turn."""


class LiteDispatch:
    """The events of all clients, and their causes."""

    def __init__(
        self,
        broker: BrokerContext,
        config: LiteConfig,
        tables: LiteTables,
        held: HeldPops,
    ) -> None:
        self._clock = broker.clock
        self._offsets = broker.offsets
        self._next_turn = broker.next_turn
        self._config = config
        self._rules, self._queues, self._subscriptions, self._orders = tables
        self._held = held
        self._blocked: dict[str, int] = {}
        """Clients that did not pop their events, with the end of BLOCKED_MS."""

        self._due: dict[tuple[str, str], int] = {}
        """Planned full dispatches: client ("" for a wildcard group) and group."""

        self._due_times: list[tuple[int, tuple[str, str]]] = []
        self.events = Events()
        self.alarm = Alarm(broker.clock.steady_ms)
        broker.clock_steps.callbacks.append(self._clock_set)

    def _clock_set(self, step_ms: int) -> None:
        """Move all times, because the clock was set."""
        self._orders.shift_times(step_ms)
        self.events.shift_times(step_ms)
        self._blocked = {
            client_id: at_ms + step_ms for client_id, at_ms in self._blocked.items()
        }
        self._due = {key: at_ms + step_ms for key, at_ms in self._due.items()}
        self._due_times = [(at_ms + step_ms, key) for at_ms, key in self._due_times]

    # -- causes of events

    def on_arrivals(self, names: Iterable[str]) -> None:
        """Offer the lite topics that got messages."""
        for queue in names:
            self._queues.add(queue)
            if self._subscriptions:
                self.offer_all(queue)

    def offer_all(self, queue: str) -> None:
        """Offer a lite topic to one client of each group that subscribes to it."""
        for group in self._subscriptions.groups_of(queue):
            self.offer(queue, group)

    def offer(self, queue: str, group: str, *, last: str = "") -> bool:
        """Offer a lite topic to one client of a group; False if all sets are full.

        The client `last` gets the lite topic only if the other clients have no room.
        """
        clients = self._subscriptions.clients_of(queue, group)
        is_wildcard = self._rules.is_wildcard(group)
        tried = list(islice(clients, TRIES))
        now_ms = self._clock.now_ms()
        tried.sort(key=lambda each: each == last or self._blocked.get(each, 0) > now_ms)
        for client_id in tried:
            if self._add_event(queue, group, client_id):
                self._subscriptions.move_to_end(queue, group, client_id)
                self._held.wake_one((client_id, group, ANY_QUEUE))
                return True
            if not is_wildcard:
                self.dispatch_later(client_id, group)
        if is_wildcard and tried:
            delay_ms = self._config.wildcard_dispatch_delay_ms
            self.dispatch_later("", group, delay_ms)
        return not tried

    def _add_event(self, queue: str, group: str, client_id: str) -> bool:
        limit = self._rules.event_limit(group, self._config.max_client_events)
        now_ms = self._clock.now_ms()
        return self.events.open(client_id, group, limit, now_ms).offer(queue)

    def offer_new(self, client_id: str, group: str, new: list[str]) -> None:
        """Offer the lite topics with messages of a new subscription."""
        if new and self._rules.is_wildcard(group):
            self.dispatch_later("", group, WILDCARD_MS)
            return
        for queue in new:
            if self._queues.end(queue) > 0:
                self.offer(queue, group)

    def offer_to_others(self, client_id: str, group: str) -> None:
        """Offer the events of a client to the other clients of its group."""
        for queue in self.events.drop(client_id):
            self.offer(queue, group, last=client_id)

    def remove_event(self, client_id: str, queue: str) -> None:
        """Remove a lite topic from the events of a client."""
        events = self.events.get(client_id)
        if events is not None:
            events.queues.pop(queue, None)

    # -- full dispatches

    def dispatch_later(
        self, client_id: str, group: str, delay_ms: int | None = None
    ) -> None:
        """Plan a full dispatch of a client, or of a wildcard group."""
        key = client_id, group
        if key in self._due:
            return
        if delay_ms is None:
            delay_ms = self._config.full_dispatch_delay_ms
        at_ms = self._clock.now_ms() + delay_ms
        self._due[key] = at_ms
        heapq.heappush(self._due_times, (at_ms, key))
        self._wake_at(at_ms)

    async def dispatch(self, client_id: str, group: str) -> None:
        """Check all lite topics of a client, or of a wildcard group."""
        if client_id and not self._rules.is_wildcard(group):
            await self._dispatch_client(client_id, group)
        else:
            await self._dispatch_wildcard(group)

    async def dispatch_group(self, group: str) -> None:
        """Check all lite topics of all clients of a group."""
        if self._rules.is_wildcard(group):
            await self._dispatch_wildcard(group)
            return
        for client_id in self._subscriptions.clients_of_group(group):
            await self._dispatch_client(client_id, group)

    async def _dispatch_client(self, client_id: str, group: str) -> None:
        subscription = self._subscriptions.get(client_id)
        if subscription is None or subscription.group != group:
            return
        limit = self._rules.event_limit(group, self._config.max_client_events)
        now_ms = self._clock.now_ms()
        events = self.events.open(client_id, group, limit, now_ms)
        if events.is_blocked(now_ms) or not events.has_room:
            self.dispatch_later(client_id, group)
            return
        for number, queue in enumerate(list(subscription.queues), 1):
            if self._has_available(queue, group):
                if not events.offer(queue):
                    self.dispatch_later(client_id, group)
                    break
                self._held.wake_one((client_id, group, ANY_QUEUE))
            if number % TURN_SIZE == 0:
                await self._next_turn()

    async def _dispatch_wildcard(self, group: str) -> None:
        parent = self._rules.bound_topic(group)
        if parent is None or not self._rules.is_wildcard(group):
            return
        if not self._subscriptions.wildcard_clients(parent, group):
            return
        for number, queue in enumerate(self._queues.queues_of(parent), 1):
            if self._has_available(queue, group) and not self.offer(queue, group):
                return
            if number % TURN_SIZE == 0:
                await self._next_turn()

    def _has_available(self, queue: str, group: str) -> bool:
        """Whether a lite topic has messages for a group, and no POP blocks it."""
        end = self._queues.end(queue)
        if end <= 0 or self._offsets.query(group, queue, 0) >= end:
            return False
        order = self._orders.get(queue, group)
        return order is None or order.blocked_until_ms(0) <= self._clock.now_ms()

    # -- tasks

    def _wake_at(self, at_ms: int) -> None:
        """Wake the task when the wall clock shows this time."""
        left_ms = max(0, at_ms - self._clock.now_ms())
        self.alarm.wake_at(self._clock.steady_ms() + left_ms)

    def update_alarm(self) -> None:
        """Set the alarm to the next time at which a queue is not blocked any more."""
        if self._orders.next_ms is not None:
            self._wake_at(self._orders.next_ms)

    async def run(self) -> None:
        """Create an event for each lite topic whose invisible time ends, until
        cancelled.
        """
        while True:
            await self.alarm.wait()
            await self.dispatch_due()

    async def dispatch_due(self) -> None:
        """Create the events that are due, and set the alarm to the next due time."""
        for queue, group in self._orders.take_unblocked(self._clock.now_ms()):
            self.offer(queue, group)
            await self._next_turn()
        self.update_alarm()
        while self._due_times and self._due_times[0][0] <= self._clock.now_ms():
            _, key = heapq.heappop(self._due_times)
            del self._due[key]
            await self.dispatch(*key)
        if self._due_times:
            self._wake_at(self._due_times[0][0])

    async def watch_clients(self) -> None:
        """Reassign the events of clients that do not pop, until cancelled."""
        while True:
            await trio.sleep(self._config.event_check_ms / 1_000)
            await self.check_clients()

    async def check_clients(self) -> None:
        """Reassign the events of clients that do not pop."""
        now_ms = self._clock.now_ms()
        self._orders.drop_before(now_ms - ABANDONED_MS)
        self._blocked = {
            client_id: until_ms
            for client_id, until_ms in self._blocked.items()
            if until_ms > now_ms
        }
        for number, (client_id, events) in enumerate(self.events.items(), 1):
            if events.is_blocked(now_ms):
                self._blocked[client_id] = now_ms + BLOCKED_MS
                self.offer_to_others(client_id, events.group)
            if number % TURN_SIZE == 0:
                await self._next_turn()
