"""LiteTables: the state of lite topics in one broker, shared by handlers and tasks."""

from typing import NamedTuple

from rmq_plugins.consume.lite.orders import LiteOrders
from rmq_plugins.consume.lite.queues import LiteQueues
from rmq_plugins.consume.lite.rules import LiteRules
from rmq_plugins.consume.lite.subscriptions import Subscriptions


class LiteTables(NamedTuple):
    """The tables of lite topics; every part unpacks them in this order."""

    rules: LiteRules
    queues: LiteQueues
    subscriptions: Subscriptions
    orders: LiteOrders
