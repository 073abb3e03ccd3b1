"""Consuming by POP: clients receive messages one by one, and ack each of them.

Requests 200050 to 200056 and 200151. docs/clients/pop.md explains the rules.
"""

import random
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import trio

from rmq.plugin import BrokerContext, Connection, Register, hookimpl, import_later
from rmq.plugin.native import (
    AckPath,
    Checkpoint,
    CheckpointTable,
    InvisibleTimePath,
    NotificationPath,
    PopPath,
    PopQueue,
    PopTable,
)
from rmq.protocol.codes import WIRE_VERSION, RequestCode
from rmq.protocol.topics import revive_topic
from rmq_plugins.consume.checks import MAX_INVISIBLE_MS
from rmq_plugins.consume.pop.orders import Orders

if TYPE_CHECKING:
    from rmq_plugins.consume.pop.parts import PopParts


@hookimpl(trylast=True)
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve POP on a master; the plugin timer must be set up before."""
    orders = Orders(broker)
    register.table(orders)
    pop = PopOnUse(broker, orders)
    register.handlers(
        pop.get_parts,
        {
            RequestCode.POP_MESSAGE: "pop",
            RequestCode.PEEK_MESSAGE: "peek",
            RequestCode.NOTIFICATION: "notify",
            RequestCode.POLLING_INFO: "report_polling",
        },
        ports=("main",),
    )
    register.handlers(
        pop.get_parts,
        {
            RequestCode.ACK_MESSAGE: "ack",
            RequestCode.BATCH_ACK_MESSAGE: "ack_batch",
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: "change_invisible_time",
            RequestCode.POP_ROLLBACK: "roll_back",
        },
    )
    register.native(RequestCode.ACK_MESSAGE, pop.create_ack_path)
    register.native(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, pop.create_time_path)
    register.native(RequestCode.POP_MESSAGE, pop.create_pop_path, ports=("main",))
    register.native(
        RequestCode.NOTIFICATION, pop.create_notification_path, ports=("main",)
    )
    register.on_config(pop.config_changed)
    register.arrivals(pop.on_arrivals)
    register.on_close(pop.drop)
    register.on_stop(pop.stop)
    register.service(pop.import_parts, masters_only=True)
    register.service(pop.serve_held_pops, masters_only=True, restart=True)
    register.service(pop.serve_compiled_waits, masters_only=True, restart=True)
    register.service(pop.revive, masters_only=True, restart=True)
    register.facts("pop", pop.facts)
    register.pop_progress(pop.find_popped_offset)


class PopOnUse:
    """POP, created at its first request, or at the start for records of an earlier run.

    Most brokers get no such request, and start without its modules.
    """

    def __init__(self, broker: BrokerContext, orders: Orders) -> None:
        self._broker = broker
        self._orders = orders
        self._parts: PopParts | None = None
        self._table: PopTable | None = None
        self._path: PopPath | None = None
        self._notices: NotificationPath | None = None
        self._checkpoints = CheckpointTable(
            broker.queues.tails,
            on_acks=self._apply_acks,
            on_touched=self._commit_offsets,
            on_wake=lambda at_ms: self.get_parts().reviver.wake_at(at_ms),
            clock_ms=broker.clock.now_ms,
            steady_ms=broker.clock.steady_ms,
        )
        self._first_use = trio.Event()
        self._revive_topic = revive_topic(broker.config.broker_cluster_name)
        if self._has_records():
            self.get_parts()

    def _has_records(self) -> bool:
        """Whether the revive topic ever had a record."""
        return bool(self._broker.queues.of_topic(self._revive_topic))

    def get_parts(self) -> "PopParts":
        """Return the parts; the first call creates them."""
        if self._parts is None:
            from rmq_plugins.consume.pop.parts import PopParts

            self._parts = PopParts(
                self._broker,
                self._orders,
                self._checkpoints,
                self.create_pop_path(),
                self.create_notification_path(),
            )
            self._first_use.set()
        return self._parts

    async def import_parts(self) -> None:
        """Import the modules of the parts: at the first POP it would take 5 ms."""
        await import_later("rmq_plugins.consume.pop.parts")

    def create_ack_path(self) -> AckPath:
        """Return the handler of acks of checkpoints in memory."""
        return AckPath(self._checkpoints, self._broker.config.broker_name, WIRE_VERSION)

    def create_time_path(self) -> InvisibleTimePath:
        """Return the handler of new invisible times of checkpoints in memory."""
        return InvisibleTimePath(
            self.get_table(), self._broker.config.broker_name, WIRE_VERSION
        )

    def create_notification_path(self) -> NotificationPath:
        """Return the handler of notifications for registered views."""
        if self._notices is None:
            self._notices = NotificationPath(self.get_table())
        return self._notices

    def get_table(self) -> PopTable:
        """Return the table of compiled POPs; the first call creates it."""
        if self._table is None:
            broker = self._broker
            self._table = PopTable(
                broker.messages.pull_table(
                    WIRE_VERSION, broker.offsets.commit_table, lambda: None
                ),
                self._checkpoints,
                draw=random.random,
                on_remaining=lambda *pop: self.get_parts().wake_pops(*pop),
                on_work=lambda: self.get_parts().waits.alarm.wake_at(0),
                broker_name=broker.config.broker_name,
                revive_queues=broker.config.revive_queue_nums,
                invisible_limit_ms=MAX_INVISIBLE_MS,
                version=WIRE_VERSION,
            )
        return self._table

    def create_pop_path(self) -> PopPath:
        """Return the handler of POPs of registered views."""
        if self._path is None:
            self._path = PopPath(self.get_table())
        return self._path

    def _apply_acks(self, acks: list[tuple[Checkpoint, int]]) -> None:
        self.get_parts().reviver.apply_acks(acks)

    def _commit_offsets(self, queues: list[PopQueue]) -> None:
        for queue in queues:
            self.get_parts().checkpoints.commit(queue)

    def config_changed(self, keys: Collection[str]) -> None:
        """Leave the next POPs to Python; leave acks to Python, too, if each ack must be
        written.
        """
        if self._parts is not None:
            self._parts.checkpoints.config_changed(keys)
            self._parts.views.remove_all()
            self._parts.waits.set_limits()

    async def serve_held_pops(self) -> None:
        """Wake and answer held POPs, until cancelled."""
        await self._first_use.wait()
        await self.get_parts().held.run()

    async def serve_compiled_waits(self) -> None:
        """Answer requests that wait in compiled code, until cancelled."""
        await self._first_use.wait()
        await self.get_parts().waits.run()

    async def revive(self) -> None:
        """Revive messages without an ack in time, until cancelled."""
        await self._first_use.wait()
        await self.get_parts().reviver.run()

    def on_arrivals(self, touched: Mapping[tuple[str, int], int]) -> None:
        """Wake held POPs of these queues, and the reviver for its own topic."""
        if self._parts is None and not self._has_records():
            return
        parts = self.get_parts()
        parts.held.on_arrivals(touched)
        parts.waits.on_arrivals(touched)
        parts.reviver.on_arrivals(touched)

    def drop(self, connection: Connection) -> None:
        """Remove the held POPs of a closed connection."""
        if self._parts is not None:
            self._parts.held.drop(connection)
            self._parts.waits.drop(connection)

    def stop(self) -> None:
        """Answer held POPs, and write checkpoints and acks in memory."""
        if self._parts is not None:
            self._parts.held.end_all()
            self._parts.waits.end_all()
            if self._broker.role.is_master:
                self._parts.reviver.stop()

    def find_popped_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the offset after the last message that a group popped, or -1."""
        if self._parts is None:
            return -1
        return self._parts.find_popped_offset(group, topic, queue_id)

    def facts(self) -> dict[str, Any]:
        """Return the facts for tools and metrics."""
        if self._parts is None:
            return {"checkpoints": 0, "queues": 0, "revived": 0, "reviveBehind": 0}
        return self._parts.reviver.facts()
