"""PopParts: the handlers and tasks of POP in one broker."""

from rmq.plugin import BrokerContext
from rmq.plugin.native import CheckpointTable, NotificationPath, PopPath
from rmq_plugins.consume.pop.acks import AckHandler
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.handler import PopHandler
from rmq_plugins.consume.pop.invisible_time import InvisibleTimeHandler
from rmq_plugins.consume.pop.native import NativePops
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.records import PopRecords
from rmq_plugins.consume.pop.revive import Reviver


class PopParts:
    """The handlers by the names under which they are registered, and the tasks."""

    def __init__(
        self,
        broker: BrokerContext,
        orders: Orders,
        table: CheckpointTable,
        pops: PopPath,
        notices: NotificationPath,
    ) -> None:
        checkpoints, records = Checkpoints(broker, table), PopRecords(broker)
        self.checkpoints = checkpoints
        self.find_popped_offset = checkpoints.find_popped_offset
        self.reviver = Reviver(broker, checkpoints, records)
        self.views = NativePops(broker, checkpoints, pops, notices)
        handler = PopHandler(broker, checkpoints, self.reviver, orders, self.views)
        self.wake_pops = handler.wake_pops
        self.held = handler.held
        self.waits = handler.waits
        acking = AckHandler(
            broker, checkpoints, self.reviver, records, orders, self.held
        )
        times = InvisibleTimeHandler(broker, checkpoints, self.reviver, orders, acking)
        self.pop = handler.pop
        self.peek = handler.peeks.peek
        self.notify = handler.notifications.notify
        self.report_polling = handler.polling_info.report_polling
        self.roll_back = handler.roll_back
        self.ack = acking.ack
        self.ack_batch = acking.ack_batch
        self.change_invisible_time = times.change_invisible_time
