"""Requests that a broker sends to consumers for a tool.

Known in Java as `Broker2Client`.

Requests 222 INVOKE_BROKER_TO_RESET_OFFSET, 223 INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
307 GET_CONSUMER_RUNNING_INFO, 309 CONSUME_MESSAGE_DIRECTLY; clients get 220 and 221.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers on both ports; their modules are imported on use."""

    def make_consumers() -> object:
        from rmq_plugins.client_requests.call_consumer import ConsumerCalls

        return ConsumerCalls(broker)

    def make_offsets() -> object:
        from rmq_plugins.client_requests.reset_offsets import ClientOffsets

        return ClientOffsets(broker)

    register.handlers(
        make_consumers,
        {
            RequestCode.GET_CONSUMER_RUNNING_INFO: "get_running_info",
            RequestCode.CONSUME_MESSAGE_DIRECTLY: "consume_directly",
        },
    )
    register.handlers(
        make_offsets,
        {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "reset_offsets",
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: "get_consumer_status",
        },
    )
