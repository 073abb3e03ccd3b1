"""Request-reply: answers of consumers on their way back to whoever asked.

Requests 324 SEND_REPLY_MESSAGE and 325, its form with short names.
"""

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.reply.handler import ReplyHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take replies on both ports."""
    handler = ReplyHandler(broker)
    register(RequestCode.SEND_REPLY_MESSAGE, handler.reply)
    register(RequestCode.SEND_REPLY_MESSAGE_V2, handler.reply)
