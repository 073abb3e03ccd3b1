"""Request 200071 LITE_SUBSCRIPTION_CTL: clients change their lite topics.

A proxy sends this request for its clients, and repeats it. In an exclusive group the
latest client evicts the other clients, and the broker sends request 200073 to these.
Known in Java as `LiteSubscriptionCtlProcessor`.
"""

from collections.abc import Iterable
from typing import Final

import trio

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.bodies.lite import (
    LiteSubscription,
    LiteSubscriptionCtlRequestBody,
    OffsetOption,
)
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.lite import NotifyUnsubscribeLiteRequestHeader
from rmq.protocol.topics import is_lite_topic, lite_queue, split_lite_queue
from rmq_plugins.consume.lite.config import LiteConfig
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.subscriptions import Subscription, wildcard_entry
from rmq_plugins.consume.lite.tables import LiteTables

FIRST: Final = OffsetOption(type="POLICY", value=1)


class LiteSubscribing:
    """Changes subscriptions."""

    def __init__(
        self,
        broker: BrokerContext,
        config: LiteConfig,
        tables: LiteTables,
        dispatch: LiteDispatch,
    ) -> None:
        self._clock = broker.clock
        self._groups = broker.groups
        self._offsets = broker.offsets
        self._next_turn = broker.next_turn
        self._config = config
        self._rules, self._queues, self._subscriptions, self._orders = tables
        self._dispatch = dispatch
        self._actions = {
            "PARTIAL_ADD": self._add,
            "PARTIAL_REMOVE": self._remove,
            "COMPLETE_ADD": self._replace,
            "COMPLETE_REMOVE": self._drop,
        }

    async def change_subscriptions(
        self, request: Command, connection: Connection
    ) -> Command:
        """Apply the entries of a request, in their order."""
        if not request.body:
            raise _illegal_operation("Request body is null.")
        entries = LiteSubscriptionCtlRequestBody.decode(request.body).subscription_set
        if not entries:
            raise _illegal_operation("LiteSubscriptionCtlRequestBody is empty.")
        for entry in entries:
            if not all(map(_is_set, (entry.client_id, entry.group, entry.topic))):
                continue
            action = self._actions.get(entry.action or "")
            if action is None:
                raise RequestRejected(
                    ResponseCode.SYSTEM_ERROR, f"there is no action {entry.action}"
                )
            if len(entry.lite_topic_set) > self._config.max_subscriptions:
                raise self._quota_exceeded()
            for name in entry.lite_topic_set:
                if not is_lite_topic(name):
                    raise _illegal_operation(
                        "lite topic can only contain alphanumeric characters, "
                        f"hyphens(-), and underscores(_), at most 64: {name}"
                    )
            action(_Change(entry), connection)
            await self._next_turn()
        return request.reply()

    def _add(self, change: "_Change", connection: Connection) -> None:
        """PARTIAL_ADD: the client subscribes to more lite topics."""
        client_id, group = change.client_id, change.group
        self._check_group(change)
        if self._rules.is_wildcard(group):
            raise _illegal_operation(
                "java.lang.IllegalStateException: subscribe lite operation is not "
                "supported for this group"
            )
        self._check_room(change, change.queues)
        self._open_subscription(change, connection)
        for queue in change.queues:
            if self._rules.is_exclusive(group):
                self._evict_others(queue, change)
            self._move_offset(queue, group, change.option)
        new = self._subscriptions.add(client_id, change.queues)
        self._dispatch.offer_new(client_id, group, new)

    def _remove(self, change: "_Change", connection: Connection) -> None:
        """PARTIAL_REMOVE: the client unsubscribes from some lite topics."""
        subscription = self._subscriptions.get(change.client_id)
        if subscription is None or subscription.group != change.group:
            return
        gone = self._subscriptions.remove(change.client_id, change.queues)
        if self._rules.resets_removed(change.group):
            for queue in gone:
                self._move_offset(queue, change.group, FIRST)

    def _replace(self, change: "_Change", connection: Connection) -> None:
        """COMPLETE_ADD: the client subscribes to these lite topics and no others."""
        client_id, group = change.client_id, change.group
        self._check_group(change)
        queues: Iterable[str] = change.queues
        if self._rules.is_wildcard(group):
            queues = [wildcard_entry(change.topic, group)]
        wanted = dict.fromkeys(queues)
        self._check_room(change, wanted)
        mine = self._open_subscription(change, connection)
        gone = [queue for queue in mine.queues if queue not in wanted]
        self._subscriptions.remove(client_id, gone)
        new = self._subscriptions.add(client_id, wanted)
        self._dispatch.offer_new(client_id, group, new)

    def _drop(self, change: "_Change", connection: Connection) -> None:
        """COMPLETE_REMOVE: the client ends."""
        subscription = self._subscriptions.get(change.client_id)
        if subscription is not None and subscription.group == change.group:
            self.drop_client(change.client_id)

    def drop_client(self, client_id: str) -> None:
        """Remove a client, and offer its events to other clients."""
        subscription = self._subscriptions.drop(client_id)
        if subscription is not None:
            self._dispatch.offer_to_others(client_id, subscription.group)

    # -- parts of the actions

    def _check_group(self, change: "_Change") -> None:
        config = self._groups.find(change.group)
        if config is None or not config.consume_enable:
            raise _illegal_operation(
                "java.lang.IllegalStateException: Consumer group is not allowed to "
                "consume."
            )
        if self._rules.bound_topic(change.group) != change.topic:
            raise _illegal_operation(
                f"subscription bind topic not match, {change.group}"
            )

    def _check_room(self, change: "_Change", queues: Iterable[str]) -> None:
        """Refuse more subscriptions, or clients, than `maxLiteSubscriptionCount`."""
        subscription = self._subscriptions.get(change.client_id)
        mine = {} if subscription is None else subscription.queues
        more = sum(queue not in mine for queue in queues)
        most = self._config.max_subscriptions
        if self._subscriptions.count + more > most or (
            subscription is None and len(self._subscriptions) >= most
        ):
            raise self._quota_exceeded()

    def _quota_exceeded(self) -> RequestRejected:
        return RequestRejected(
            ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED,
            "org.apache.rocketmq.broker.lite.LiteQuotaException: lite subscription "
            f"quota exceeded {self._config.max_subscriptions}",
        )

    def _open_subscription(
        self, change: "_Change", connection: Connection
    ) -> Subscription:
        return self._subscriptions.open(
            change.client_id,
            change.group,
            change.topic,
            connection,
            self._clock.steady_ms(),
        )

    def _evict_others(self, queue: str, change: "_Change") -> None:
        """Remove a lite topic from the group's other clients, and notify them."""
        group = change.group
        for client_id in list(self._subscriptions.clients_of(queue, group)):
            if client_id == change.client_id:
                continue
            evicted = self._subscriptions.get(client_id)
            self._subscriptions.remove(client_id, [queue])
            if self._rules.resets_evicted(group):
                self._move_offset(queue, group, FIRST)
            parts = split_lite_queue(queue)
            if evicted is None or parts is None or not evicted.connection.is_open:
                continue
            header = NotifyUnsubscribeLiteRequestHeader(
                lite_topic=parts[1], consumer_group=group, client_id=client_id
            )
            code = RequestCode.NOTIFY_UNSUBSCRIBE_LITE
            notice = Command.request(code, header, oneway=True)
            evicted.connection.send_nowait(notice)

    def _move_offset(self, queue: str, group: str, option: OffsetOption | None) -> None:
        """Reset a group's offset in a lite topic to the target of an option."""
        if option is None:
            return
        committed = self._offsets.query(group, queue, 0)
        target = _find_target(option, committed, self._queues.end(queue))
        if target is not None and target != committed:
            self._offsets.reset(group, queue, 0, target)
            self._orders.drop(queue, group)

    async def watch_clients(self) -> None:
        """Remove silent clients, until cancelled."""
        while True:
            await trio.sleep(self._config.subscription_check_ms / 1_000)
            await self.drop_silent()

    async def drop_silent(self) -> None:
        """Remove the clients that sent no subscriptions within the timeout."""
        timeout_ms = self._config.subscription_timeout_ms
        before_ms = self._clock.steady_ms() - timeout_ms
        for client_id in self._subscriptions.silent_clients(before_ms):
            self.drop_client(client_id)
            await self._next_turn()


class _Change:
    """A checked entry of a request."""

    def __init__(self, entry: LiteSubscription) -> None:
        self.client_id = entry.client_id or ""
        self.group = entry.group or ""
        self.topic = entry.topic or ""
        names = dict.fromkeys(entry.lite_topic_set)
        self.queues = [lite_queue(self.topic, name) for name in names]
        self.option = entry.offset_option


def _find_target(option: OffsetOption, committed: int, end: int) -> int | None:
    """Return the target offset of an option; None for no change."""
    if option.type == "POLICY":
        return {1: 0, 2: end}.get(option.value)
    if option.type == "OFFSET":
        return max(0, option.value)
    if option.type == "TAIL_N" and committed >= 0:
        return max(0, committed - max(0, option.value))
    return None


def _is_set(text: str | None) -> bool:
    return bool(text and text.strip())


def _illegal_operation(remark: str) -> RequestRejected:
    return RequestRejected(ResponseCode.ILLEGAL_OPERATION, remark)
