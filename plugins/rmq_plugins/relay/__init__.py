"""What tools want of a consumer, passed on to it.

Requests 222 INVOKE_BROKER_TO_RESET_OFFSET, 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY; clients get 220 and 221.
"""

from rmq.broker.context import BrokerContext, RegisterHandler
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.relay.consumers import ConsumerRelay
from rmq_plugins.relay.offsets import OffsetRelay


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take these on both ports."""
    consumers = ConsumerRelay(broker)
    register(RequestCode.GET_CONSUMER_RUNNING_INFO, consumers.running_info)
    register(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumers.consume_directly)
    offsets = OffsetRelay(broker)
    register(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, offsets.reset)
    register(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, offsets.status)
