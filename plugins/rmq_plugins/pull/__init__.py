"""Pulling messages: requests 11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE, long polling.

Only the main port takes pulls: the fast port exists so that heartbeats and commits do
not wait behind them.
"""

from collections.abc import Sequence

from rmq.broker.context import (
    ArrivalListener,
    BrokerContext,
    RegisterHandler,
    RegisterNative,
    Service,
)
from rmq.hookspecs import hookimpl
from rmq.native import PullPath
from rmq.protocol.codes import RequestCode
from rmq_plugins.pull.handler import pulls_of

_MAIN_ONLY = ("main",)


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take pulls on the main port."""
    handler = pulls_of(broker)
    register(RequestCode.PULL_MESSAGE, handler.pull, ports=_MAIN_ONLY)
    register(RequestCode.LITE_PULL_MESSAGE, handler.pull, ports=_MAIN_ONLY)
    broker.on_close.append(handler.held.drop)
    broker.on_stop.append(handler.held.end_all)


@hookimpl
def rmq_native_handlers(broker: BrokerContext, register: RegisterNative) -> None:
    """Serve pulls that find messages compiled."""
    table = pulls_of(broker).compiled(broker).table
    register(RequestCode.PULL_MESSAGE, PullPath(table), ports=_MAIN_ONLY)
    if broker.config.lite_pull_message_enable:
        register(RequestCode.LITE_PULL_MESSAGE, PullPath(table), ports=_MAIN_ONLY)


@hookimpl
def rmq_arrival_listeners(broker: BrokerContext) -> Sequence[ArrivalListener]:
    """Wake held pulls when messages arrive."""
    return [pulls_of(broker).held.on_arrivals]


@hookimpl
def rmq_services(broker: BrokerContext) -> Sequence[Service]:
    """End held pulls that were woken, or whose time is over."""
    return [pulls_of(broker).serve_held_pulls]
