"""Consuming by POP: messages are taken one by one, and acked one by one.

Requests 200050 to 200056 and 200151. docs/pop.md explains the rules.
"""

from collections.abc import Mapping

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq_plugins.pop.acks import AckHandler
from rmq_plugins.pop.checkpoints import Checkpoints
from rmq_plugins.pop.handler import PopHandler
from rmq_plugins.pop.orders import Orders
from rmq_plugins.pop.records import PopRecords
from rmq_plugins.pop.revive import Reviver


@hookimpl(trylast=True)
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Serve POP on a master; the timer is set up before."""
    checkpoints, records = Checkpoints(broker), PopRecords(broker)
    orders = Orders(broker)
    reviver = Reviver(broker, checkpoints, records)
    pops = PopHandler(broker, checkpoints, reviver, orders)
    acks = AckHandler(broker, checkpoints, reviver, records, orders, pops.held)
    register.table(orders)
    main = ("main",)
    register.handler(RequestCode.POP_MESSAGE, pops.pop, ports=main)
    register.handler(RequestCode.PEEK_MESSAGE, pops.questions.peek, ports=main)
    register.handler(RequestCode.NOTIFICATION, pops.questions.notify, ports=main)
    register.handler(RequestCode.POLLING_INFO, pops.questions.polling_info, ports=main)
    register.handler(RequestCode.ACK_MESSAGE, acks.ack)
    register.handler(RequestCode.BATCH_ACK_MESSAGE, acks.ack_batch)
    register.handler(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, acks.change)
    register.handler(RequestCode.POP_ROLLBACK, pops.questions.roll_back)

    def on_arrivals(touched: Mapping[tuple[str, int], int]) -> None:
        pops.held.on_arrivals(touched)
        reviver.on_arrivals(touched)

    def on_stop() -> None:
        pops.held.end_all()
        if broker.role.is_master:
            reviver.stop()

    register.arrivals(on_arrivals)
    register.on_close(pops.held.drop)
    register.on_stop(on_stop)
    register.service(pops.held.run, masters_only=True)
    register.service(reviver.run, masters_only=True)
    register.facts("pop", reviver.facts)
