"""Timed messages, which are delivered at the time in their properties, and their
recall.

The properties TIMER_DELAY_SEC, TIMER_DELAY_MS and TIMER_DELIVER_MS set the time.
Requests 370 RECALL_MESSAGE, 60 GET_TIMER_CHECK_POINT and 61 GET_TIMER_METRICS.
"""

import logging

from rmq.plugin import BrokerContext, Register, hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.topics import TIMER_TOPIC, revive_topic
from rmq_plugins.timer.acting import ActingDeliveries
from rmq_plugins.timer.deliver import Deliveries
from rmq_plugins.timer.intake import TIMES, Intake
from rmq_plugins.timer.progress import Progress

logger = logging.getLogger(__name__)


@hookimpl
def rmq_setup(broker: BrokerContext, register: Register) -> None:
    """Divert timed messages, deliver the messages that are due, and serve recalls."""

    def create_recalls() -> object:
        from rmq_plugins.timer.recall import RecallHandler

        return RecallHandler(broker)

    timer = broker.timer
    timer.acted_records.leave_topic(revive_topic(broker.config.broker_cluster_name))
    if broker.store_config.timer_wheel_enable and broker.role.is_master:
        for line in broker.store.open_timer():
            logger.warning("%s", line)
    else:
        timer.load_checkpoint()
    intake = Intake(broker)
    register.interceptor(TIMES, intake.divert_timed, native=intake.native)
    register.send_fields(TIMER_TOPIC, intake.recall_handle)
    register.on_config(intake.config_changed)
    deliveries = Deliveries(broker)
    if timer.is_open:
        register.arrivals(deliveries.on_arrivals)
        register.service(deliveries.run, masters_only=True, restart=True)
        register.on_stop(deliveries.stop)
    register.handlers(create_recalls, {RequestCode.RECALL_MESSAGE: "recall"})
    progress = Progress(broker, deliveries)
    register.handler(RequestCode.GET_TIMER_CHECK_POINT, progress.show_checkpoint)
    register.handler(RequestCode.GET_TIMER_METRICS, progress.show_metrics)
    register.facts("timer", progress.facts)
    register.table(progress.table)
    register.copied_table(
        RequestCode.GET_TIMER_CHECK_POINT, progress.copy, take_back=progress.take_back
    )
    escape = broker.replicas.escape
    if escape is not None and broker.store_config.timer_wheel_enable:
        acting = ActingDeliveries(deliveries, escape, broker)
        register.service(acting.run, restart=True)
