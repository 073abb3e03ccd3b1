"""Looking up messages: requests 12 QUERY_MESSAGE and 33 VIEW_MESSAGE_BY_ID."""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for queries by key, unique key, tags and offset."""

    def make_handler() -> object:
        from rmq_plugins.query.handler import QueryHandler

        return QueryHandler(broker)

    register.handlers(
        make_handler,
        {
            RequestCode.QUERY_MESSAGE: "query_by_key",
            RequestCode.VIEW_MESSAGE_BY_ID: "view_by_offset",
        },
    )
