"""Exports all metrics regularly: to a collector by OTLP, or to the log.

A collector that does not answer costs one worker thread; the log reports the first
failure, and the first success after it. Counters only grow, so the next export contains
a failed one; with `metricsInDelta` the failed export is lost.
"""

import logging
from collections.abc import Callable, Iterable
from functools import partial

import trio

from rmq.config.option import MetricsExporter
from rmq.core.clock import Clock
from rmq.core.errors import BadValue
from rmq.core.logs import Foreign
from rmq.observe.config import ExportConfig
from rmq.observe.metrics.exposition import Meter
from rmq.observe.metrics.otlp import (
    Exporter,
    Scope,
    Span,
    json_lines,
    make_exporter,
    sdk_metrics,
)
from rmq.observe.metrics.points import Deltas, collect_metrics

logger = logging.getLogger(__name__)

MS_NS = 1_000_000
STOP_TIMEOUT_MS = 1_000
"""Time limit of the last export at a stop."""

Meters = Callable[[], Iterable[Meter]]
"""Function that returns the meters of the process."""


def open_exporter(kind: MetricsExporter, config: ExportConfig) -> Exporter | None:
    """Return the exporter for OTLP, None for the log; ConfigError if there is none."""
    if kind is MetricsExporter.LOG:
        return None
    if not config.target:
        raise BadValue(
            "metricsExporterType",
            kind.name,
            "set metricsGrpcExporterTarget to the address of a collector",
        )
    return make_exporter(
        kind.name, config.url, config.header_table(), config.timeout_ms
    )


class MetricsExport:
    """The exports of one process."""

    def __init__(
        self,
        config: ExportConfig,
        exporter: Exporter | None,
        meters: Meters,
        clock: Clock,
    ) -> None:
        """Without an exporter the metrics go to the log."""
        self._config = config
        self._exporter = exporter
        self._meters = meters
        self._clock = clock
        self._deltas: dict[str, Deltas] = {}
        self._start_ns = clock.now_ms() * MS_NS
        self._has_failed = False

    async def run(self) -> None:
        """Export periodically until cancelled; then export once more, with a short time
        limit.
        """
        config = self._config
        is_log = self._exporter is None
        interval_ms = config.log_interval_ms if is_log else config.interval_ms
        try:
            while True:
                await trio.sleep(interval_ms / 1_000)
                await self.export(config.timeout_ms)
        finally:
            with trio.move_on_after(STOP_TIMEOUT_MS / 1_000, shield=True):
                await self.export(STOP_TIMEOUT_MS)
                if self._exporter is not None:
                    end = partial(self._exporter.shutdown, STOP_TIMEOUT_MS)
                    await trio.to_thread.run_sync(end, abandon_on_cancel=True)

    async def export(self, timeout_ms: int) -> None:
        """Export all metrics as they are now."""
        scopes: list[Scope] = [
            (name, await collect_metrics(families, labels))
            for name, families, labels in self._meters()
        ]
        now_ns = self._clock.now_ms() * MS_NS
        span = Span(self._start_ns, now_ns, self._config.is_delta)
        if self._config.is_delta:
            scopes = [
                (name, self._deltas.setdefault(name, Deltas()).since_last(metrics))
                for name, metrics in scopes
            ]
            self._start_ns = now_ns
        if self._exporter is None:
            for line in json_lines(scopes, span):
                logger.info("%s", line)
                await trio.lowlevel.checkpoint()
            return
        send = partial(_send, self._exporter, scopes, span, timeout_ms)
        failure = await trio.to_thread.run_sync(send, abandon_on_cancel=True)
        self._report(failure)

    def _report(self, failure: str) -> None:
        if failure and not self._has_failed:
            logger.warning(
                "metrics cannot be exported to %s: %s",
                Foreign(self._config.url),
                Foreign(failure),
            )
        elif self._has_failed and not failure:
            logger.info("metrics are exported to %s again", Foreign(self._config.url))
        self._has_failed = bool(failure)


def _send(exporter: Exporter, scopes: list[Scope], span: Span, timeout_ms: int) -> str:
    """Send metrics; return why it failed, or an empty text.  Blocks."""
    try:
        result = exporter.export(sdk_metrics(scopes, span), timeout_ms)
    except Exception as error:  # a supervisor: the library may raise anything
        return str(error) or type(error).__name__
    return "" if result.name == "SUCCESS" else "the collector did not accept them"
