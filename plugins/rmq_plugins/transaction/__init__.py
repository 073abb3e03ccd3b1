"""Transactional messages: held back until their producer says commit or rollback.

Requests 37 END_TRANSACTION and 323 RESUME_CHECK_HALF_MESSAGE; the broker asks with 39
CHECK_TRANSACTION_STATE.
"""

from collections.abc import Sequence

from rmq.broker.context import (
    BrokerContext,
    PutInterceptor,
    RegisterHandler,
    Service,
)
from rmq.hookspecs import hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.properties import TRAN_MSG
from rmq_plugins.transaction.check import Checker
from rmq_plugins.transaction.half_log import half_log_of
from rmq_plugins.transaction.handler import TransactionHandler


@hookimpl
def rmq_handlers(broker: BrokerContext, register: RegisterHandler) -> None:
    """Take the end of transactions on both ports."""
    handler = TransactionHandler(broker, half_log_of(broker))
    register(RequestCode.END_TRANSACTION, handler.end)
    register(RequestCode.RESUME_CHECK_HALF_MESSAGE, handler.resume)
    broker.on_stop.append(half_log_of(broker).write_ops)


@hookimpl(tryfirst=True)
def rmq_put_interceptors(broker: BrokerContext) -> Sequence[PutInterceptor]:
    """Hold half messages back, before a delay is looked at."""
    return [PutInterceptor(frozenset({TRAN_MSG}), half_log_of(broker).hold_back)]


@hookimpl
def rmq_services(broker: BrokerContext) -> Sequence[Service]:
    """Ask after transactions that stay open, and write down those that ended."""
    log = half_log_of(broker)
    return [Checker(broker, log).run, log.write_ops_later]
