"""PopParts: the handlers and tasks of POP in one broker."""

from rmq.plugin import BrokerContext
from rmq.plugin.native import AckTable
from rmq_plugins.consume.pop.acks import AckHandler
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.handler import PopHandler
from rmq_plugins.consume.pop.invisible_time import InvisibleTimeHandler
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.records import PopRecords
from rmq_plugins.consume.pop.revive import Reviver


class PopParts:
    """The handlers by the names under which they are registered, and the tasks."""

    def __init__(self, broker: BrokerContext, orders: Orders, acks: AckTable) -> None:
        checkpoints, records = Checkpoints(broker, acks), PopRecords(broker)
        self.find_popped_offset = checkpoints.find_popped_offset
        self.reviver = Reviver(broker, checkpoints, records)
        pops = PopHandler(broker, checkpoints, self.reviver, orders)
        self.held = pops.held
        handler = AckHandler(
            broker, checkpoints, self.reviver, records, orders, self.held
        )
        times = InvisibleTimeHandler(broker, checkpoints, self.reviver, orders, handler)
        self.pop = pops.pop
        self.peek = pops.peeks.peek
        self.notify = pops.notifications.notify
        self.report_polling = pops.polling_info.report_polling
        self.roll_back = pops.roll_back
        self.ack = handler.ack
        self.ack_batch = handler.ack_batch
        self.change_invisible_time = times.change_invisible_time
