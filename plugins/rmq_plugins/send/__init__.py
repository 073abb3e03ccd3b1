"""Sending messages: requests 10 SEND_MESSAGE, 310 SEND_MESSAGE_V2, 320 a batch,
36 CONSUMER_SEND_MSG_BACK.
"""

from rmq.broker.context import BrokerContext, RegisterHandler, RegisterNative
from rmq.hookspecs import hookimpl
from rmq.native import SendPath
from rmq.protocol.codes import RequestCode
from rmq_plugins.send.handler import sends_of
from rmq_plugins.send.send_back import SendBackHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Both ports take messages."""
    handler = sends_of(broker)
    register(RequestCode.SEND_MESSAGE, handler.send)
    register(RequestCode.SEND_MESSAGE_V2, handler.send)
    register(RequestCode.SEND_BATCH_MESSAGE, handler.send)
    back = SendBackHandler(broker)
    register(RequestCode.CONSUMER_SEND_MSG_BACK, back.send_back)


@hookimpl
def rmq_native_handlers(broker: BrokerContext, register: RegisterNative) -> None:
    """Serve single messages compiled, on a broker that takes sends from its start."""
    config = broker.config
    accepts_later = config.start_accept_send_request_time_stamp > broker.clock.now_ms()
    if accepts_later:
        return
    table = sends_of(broker).compiled(broker).table
    long, short = (SendPath(table, has_short_names=short) for short in (False, True))
    register(RequestCode.SEND_MESSAGE, long)
    register(RequestCode.SEND_MESSAGE_V2, short)
