"""LiteParts: the tables, handlers and tasks of lite topics in one broker."""

from rmq.plugin import BrokerContext
from rmq_plugins.consume.held_pops import HeldPops
from rmq_plugins.consume.lite.acks import LiteAcks
from rmq_plugins.consume.lite.config import LiteConfig
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.expiry import LiteExpiry
from rmq_plugins.consume.lite.orders import LiteOrders
from rmq_plugins.consume.lite.popping import LitePops
from rmq_plugins.consume.lite.queues import LiteQueues
from rmq_plugins.consume.lite.rules import LiteRules
from rmq_plugins.consume.lite.sharding import Sharding
from rmq_plugins.consume.lite.subscribing import LiteSubscribing
from rmq_plugins.consume.lite.subscriptions import Subscriptions
from rmq_plugins.consume.lite.tools import LiteTools


class LiteParts:
    """The tables, the handlers and the tasks."""

    def __init__(self, broker: BrokerContext, config: LiteConfig) -> None:
        self.held = HeldPops(broker)
        self.rules = LiteRules(broker)
        self.queues = LiteQueues(broker)
        self.subscriptions = Subscriptions()
        self.orders = LiteOrders()
        tables = self.queues, self.subscriptions, self.orders
        self.dispatch = LiteDispatch(broker, config, self.rules, *tables, self.held)
        self.pops = LitePops(broker, *tables, self.dispatch, self.held)
        self.acks = LiteAcks(
            broker, self.rules, self.queues, self.orders, self.dispatch
        )
        rest = self.rules, *tables, self.dispatch
        self.subscribing = LiteSubscribing(broker, config, *rest)
        self.expiry = LiteExpiry(broker, config, *rest)
        self.tools = LiteTools(broker, *rest, Sharding(broker))
