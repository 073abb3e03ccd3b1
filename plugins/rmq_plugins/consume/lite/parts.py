"""LiteParts: the tables, handlers and tasks of lite topics in one broker."""

from rmq.plugin import BrokerContext
from rmq_plugins.consume.held_pops import HeldPops
from rmq_plugins.consume.lite.acks import LiteAcks
from rmq_plugins.consume.lite.config import LiteConfig
from rmq_plugins.consume.lite.dispatch import LiteDispatch
from rmq_plugins.consume.lite.lifecycle import LiteExpiry
from rmq_plugins.consume.lite.orders import LiteOrders
from rmq_plugins.consume.lite.popping import LitePops
from rmq_plugins.consume.lite.queues import LiteQueues
from rmq_plugins.consume.lite.rules import LiteRules
from rmq_plugins.consume.lite.sharding import Sharding
from rmq_plugins.consume.lite.subscribing import LiteSubscribing
from rmq_plugins.consume.lite.subscriptions import Subscriptions
from rmq_plugins.consume.lite.tables import LiteTables
from rmq_plugins.consume.lite.tools import LiteTools


class LiteParts:
    """The tables, the handlers and the tasks."""

    def __init__(self, broker: BrokerContext, config: LiteConfig) -> None:
        self.held = HeldPops(broker)
        rules, queues = LiteRules(broker), LiteQueues(broker)
        tables = LiteTables(rules, queues, Subscriptions(), LiteOrders())
        self.dispatch = LiteDispatch(broker, config, tables, self.held)
        self.pops = LitePops(broker, tables, self.dispatch, self.held)
        self.acks = LiteAcks(broker, tables, self.dispatch)
        self.subscribing = LiteSubscribing(broker, config, tables, self.dispatch)
        self.expiry = LiteExpiry(broker, config, tables, self.dispatch)
        self.tools = LiteTools(broker, tables, self.dispatch, Sharding(broker))
