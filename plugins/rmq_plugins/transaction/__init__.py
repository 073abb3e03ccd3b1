"""Transactional messages: invisible until their producer sends commit or rollback.

Requests 37 END_TRANSACTION and 323 RESUME_CHECK_HALF_MESSAGE; the broker sends 39
CHECK_TRANSACTION_STATE to producers.
"""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.properties import TRAN_MSG
from rmq_plugins.transaction.acting import ActingChecks
from rmq_plugins.transaction.half_log import HalfLog
from rmq_plugins.transaction.native import NativeEnds
from rmq_plugins.transaction.transaction_check import Checker


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Hold half messages, end transactions, and check open transactions."""
    log = HalfLog(broker)
    checker = Checker(broker, log)
    native = NativeEnds(broker, log)

    def make_handler() -> object:
        from rmq_plugins.transaction.handler import TransactionHandler

        return TransactionHandler(broker, log, native)

    register.handlers(
        make_handler,
        {
            RequestCode.END_TRANSACTION: "end_transaction",
            RequestCode.RESUME_CHECK_HALF_MESSAGE: "resume_check",
        },
    )

    register.native(RequestCode.END_TRANSACTION, native.enable_path)
    register.arrivals(log.ops.write_if_full)

    def read_facts() -> dict[str, object]:
        return {"asked": log.count_checked(), "silent": checker.silent_groups}

    register.interceptor(  # the delay is applied later
        {TRAN_MSG}, log.convert_to_half, first=True, native=log.native
    )
    register.facts("transactions", read_facts)
    register.facts("openTransactions", lambda: {"offsets": log.open_offsets()})
    register.service(checker.run, masters_only=True, restart=True)
    register.service(log.ops.write_periodically, masters_only=True, restart=True)
    register.on_stop(log.ops.write_ended)
    escape = broker.replicas.escape
    if escape is not None:
        register.service(ActingChecks(broker, escape).run, restart=True)
