"""Request-reply: sends replies of consumers back to the producers that asked.

Requests 324 SEND_REPLY_MESSAGE and 325, its form with short names.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers for replies on both ports."""

    def make_handler() -> object:
        from rmq_plugins.reply.handler import ReplyHandler

        return ReplyHandler(broker)

    register.handlers(
        make_handler,
        {
            RequestCode.SEND_REPLY_MESSAGE: "handle_reply",
            RequestCode.SEND_REPLY_MESSAGE_V2: "handle_reply",
        },
    )
