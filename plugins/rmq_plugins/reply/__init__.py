"""Request-reply: sends replies of consumers back to the producers that asked.

Requests 324 SEND_REPLY_MESSAGE and 325, its form with short names.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.reply.handler import ReplyHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for replies on both ports."""
    handler = ReplyHandler(broker)
    register.handler(RequestCode.SEND_REPLY_MESSAGE, handler.reply)
    register.handler(RequestCode.SEND_REPLY_MESSAGE_V2, handler.reply)
