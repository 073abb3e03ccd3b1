"""PopParts: everything of POP in one broker, put together."""

from rmq.plugin import BrokerContext
from rmq.plugin.native import AckTable
from rmq_plugins.consume.pop.acks import AckHandler
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.handler import PopHandler
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.records import PopRecords
from rmq_plugins.consume.pop.revive import Reviver


class PopParts:
    """The handlers by the names under which they are registered, and the tasks."""

    def __init__(self, broker: BrokerContext, orders: Orders, acks: AckTable) -> None:
        checkpoints, records = Checkpoints(broker, acks), PopRecords(broker)
        self.reached = checkpoints.reached
        self.reviver = Reviver(broker, checkpoints, records)
        pops = PopHandler(broker, checkpoints, self.reviver, orders)
        self.held = pops.held
        handler = AckHandler(
            broker, checkpoints, self.reviver, records, orders, self.held
        )
        self.pop = pops.pop
        self.peek = pops.questions.peek
        self.notify = pops.questions.notify
        self.polling_info = pops.questions.polling_info
        self.roll_back = pops.questions.roll_back
        self.ack = handler.ack
        self.ack_batch = handler.ack_batch
        self.change = handler.change
