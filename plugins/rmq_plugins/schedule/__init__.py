"""Delayed messages: the property DELAY names a level, `messageDelayLevel` its delay."""

from collections.abc import Sequence
from functools import partial

from rmq.broker.context import ArrivalListener, BrokerContext, PutInterceptor, Service
from rmq.broker.housekeeping import save_changes
from rmq.hookspecs import hookimpl
from rmq.protocol.properties import DELAY
from rmq_plugins.schedule.deliver import deliveries_of


@hookimpl
def rmq_put_interceptors(broker: BrokerContext) -> Sequence[PutInterceptor]:
    """Put messages with a delay level aside."""
    return [PutInterceptor(frozenset({DELAY}), deliveries_of(broker).put_aside)]


@hookimpl
def rmq_arrival_listeners(broker: BrokerContext) -> Sequence[ArrivalListener]:
    """Hear when a message that was put aside can be read."""
    return [deliveries_of(broker).on_arrivals]


@hookimpl
def rmq_services(broker: BrokerContext) -> Sequence[Service]:
    """Deliver what is due, and save how far that has come."""
    deliveries = deliveries_of(broker)
    interval_s = broker.config.flush_delay_offset_interval_ms / 1_000
    return [deliveries.run, partial(save_changes, deliveries.offsets, interval_s)]
