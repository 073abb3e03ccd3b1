"""Sending messages: requests 10 SEND_MESSAGE, 310 SEND_MESSAGE_V2, 320 a batch,
36 CONSUMER_SEND_MSG_BACK.
"""

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.send.handler import SendHandler
from rmq_plugins.send.send_back import SendBackHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Both ports take messages."""
    handler = SendHandler(broker)
    register(RequestCode.SEND_MESSAGE, handler.send)
    register(RequestCode.SEND_MESSAGE_V2, handler.send)
    register(RequestCode.SEND_BATCH_MESSAGE, handler.send)
    back = SendBackHandler(broker)
    register(RequestCode.CONSUMER_SEND_MSG_BACK, back.send_back)
