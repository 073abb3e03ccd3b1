"""Sending messages: requests 10 SEND_MESSAGE, 310 SEND_MESSAGE_V2, 320 a batch,
36 CONSUMER_SEND_MSG_BACK.
"""

from functools import partial

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.plugin.native import SendBackPath, SendPath
from rmq.protocol.codes import RequestCode
from rmq_plugins.send.handler import SendHandler
from rmq_plugins.send.send_back import SendBackHandler


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Register the handlers of sends on both ports."""
    sends = SendHandler(broker)
    register.handler(RequestCode.SEND_MESSAGE, sends.send)
    register.handler(RequestCode.SEND_MESSAGE_V2, sends.send)
    register.handler(RequestCode.SEND_BATCH_MESSAGE, sends.send)
    back = SendBackHandler(broker)
    register.handler(RequestCode.CONSUMER_SEND_MSG_BACK, back.send_back)
    register.on_config(sends.config_changed)
    register.on_config(back.config_changed)
    register.facts("storeOnce", sends.once.facts)

    def create_path(*, has_short_names: bool, takes_batches: bool = False) -> SendPath:
        return SendPath(
            sends.enable_native(broker).table,
            has_short_names=has_short_names,
            takes_batches=takes_batches,
        )

    def create_back_path() -> SendBackPath:
        sends.enable_native(broker)
        return back.native.create_path()

    accept_from_ms = broker.config.start_accept_send_request_time_stamp
    if accept_from_ms > broker.clock.now_ms():
        return  # the Python handler refuses sends until then
    long = partial(create_path, has_short_names=False)
    short = partial(create_path, has_short_names=True)
    batch = partial(create_path, has_short_names=True, takes_batches=True)
    register.native(RequestCode.SEND_MESSAGE, long)
    register.native(RequestCode.SEND_MESSAGE_V2, short)
    register.native(RequestCode.SEND_BATCH_MESSAGE, batch)
    register.native(RequestCode.CONSUMER_SEND_MSG_BACK, create_back_path)
