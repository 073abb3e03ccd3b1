"""The scan for inactive brokers.  Known in Java as `scanNotActiveBroker`."""

import logging

import trio

from rmq.core.clock import Clock
from rmq.core.clock_steps import ClockSteps
from rmq.core.logs import Foreign, SparseLog
from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.routes import RouteTable

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())


async def scan_inactive_brokers(
    routes: RouteTable, config: NamesrvConfig, clock: Clock
) -> None:
    """Remove silent brokers; a step of the wall clock does not count as silence."""
    steps = ClockSteps(clock)
    steps.callbacks.append(routes.shift_times)
    while True:
        await trio.sleep(config.scan_interval_ms / 1000)
        steps.notice_step()
        for address in routes.expire():
            logger.warning(
                "broker %s has expired: it was silent for too long",
                Foreign(address),
            )
