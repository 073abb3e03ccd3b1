"""Requests of tools to a consumer, which the broker forwards.

Requests 222 INVOKE_BROKER_TO_RESET_OFFSET, 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY; clients get 220 and 221.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.relay.consumers import ConsumerRelay
from rmq_plugins.relay.offsets import OffsetRelay


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers on both ports."""
    consumers = ConsumerRelay(broker)
    register.handler(RequestCode.GET_CONSUMER_RUNNING_INFO, consumers.running_info)
    register.handler(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumers.consume_directly)
    offsets = OffsetRelay(broker)
    register.handler(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, offsets.reset)
    register.handler(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, offsets.status)
