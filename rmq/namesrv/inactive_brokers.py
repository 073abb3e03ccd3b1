"""The scan for inactive brokers.  Known in Java as `scanNotActiveBroker`."""

import logging
from collections.abc import Callable

import trio

from rmq.core.logs import Foreign, SparseLog
from rmq.namesrv.config import NamesrvConfig
from rmq.namesrv.routes import RouteTable

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

JUMP_MS = 10_000
"""Difference between wall clock and monotonic clock that counts as a jump."""


async def scan_inactive_brokers(
    routes: RouteTable, config: NamesrvConfig, now_ms: Callable[[], int]
) -> None:
    """Remove silent brokers; a jump of the wall clock does not count as silence."""
    while True:
        wall_ms, steady_s = now_ms(), trio.current_time()
        await trio.sleep(config.scan_interval_ms / 1000)
        steady_ms = int((trio.current_time() - steady_s) * 1000)
        jump_ms = now_ms() - wall_ms - steady_ms
        if abs(jump_ms) > JUMP_MS:
            logger.warning("the clock jumped by %d s", jump_ms // 1000)
            routes.shift_times(jump_ms)
        for address in routes.expire():
            logger.warning(
                "broker %s has expired: it was silent for too long",
                Foreign(address),
            )
