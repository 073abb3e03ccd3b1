"""Delayed messages: the property DELAY names a level, `messageDelayLevel` its delay."""

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.properties import DELAY
from rmq_plugins.schedule.acting import ActingDeliveries
from rmq_plugins.schedule.deliver import Deliveries


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Divert messages with a delay level, and deliver the messages that are due."""
    deliveries = Deliveries(broker)
    interval_s = broker.config.flush_delay_offset_interval_ms / 1_000
    register.table(deliveries.offsets, interval_s=interval_s)
    register.facts("delayOffset", deliveries.offsets.facts)
    register.interceptor({DELAY}, deliveries.divert_delayed, native=deliveries.native)
    register.copied_table(
        RequestCode.GET_ALL_DELAY_OFFSET,
        deliveries.offsets.copy,
        take_back=deliveries.offsets.raise_to,
    )
    register.arrivals(deliveries.on_arrivals)
    register.service(deliveries.run, masters_only=True, restart=True)
    escape = broker.replicas.escape
    if escape is not None:
        acting = ActingDeliveries(deliveries, escape, broker)
        register.service(acting.run, restart=True)
