"""Looking up messages: requests 12 QUERY_MESSAGE and 33 VIEW_MESSAGE_BY_ID."""

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.query.handler import QueryHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take queries by key, unique key, tags and offset."""
    handler = QueryHandler(broker)
    register(RequestCode.QUERY_MESSAGE, handler.by_key)
    register(RequestCode.VIEW_MESSAGE_BY_ID, handler.by_offset)
