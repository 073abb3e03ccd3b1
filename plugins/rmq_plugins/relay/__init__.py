"""Requests of tools to a consumer, which the broker forwards.

Requests 222 INVOKE_BROKER_TO_RESET_OFFSET, 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY; clients get 220 and 221.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers on both ports; what they need is imported on use."""

    def consumers() -> object:
        from rmq_plugins.relay.consumers import ConsumerRelay

        return ConsumerRelay(broker)

    def offsets() -> object:
        from rmq_plugins.relay.offsets import OffsetRelay

        return OffsetRelay(broker)

    register.handlers(
        consumers,
        {
            RequestCode.GET_CONSUMER_RUNNING_INFO: "running_info",
            RequestCode.CONSUME_MESSAGE_DIRECTLY: "consume_directly",
        },
    )
    register.handlers(
        offsets,
        {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "reset",
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: "status",
        },
    )
