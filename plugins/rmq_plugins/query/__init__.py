"""Looking up messages: requests 12 QUERY_MESSAGE and 33 VIEW_MESSAGE_BY_ID."""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.query.handler import QueryHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for queries by key, unique key, tags and offset."""
    handler = QueryHandler(broker)
    register.handler(RequestCode.QUERY_MESSAGE, handler.by_key)
    register.handler(RequestCode.VIEW_MESSAGE_BY_ID, handler.by_offset)
