"""The service of `rmq-spark follow`: runs rounds of an exporter until a signal.

A round exports, batch after batch, up to the end that the log had at the start of the
round. So a busy
store does not get a commit for every few messages.  After a complete round the service
merges small files, if that is on.  A stop waits for the running batch.  If the first
round fails, the service ends, because an option is wrong.  If a later round fails, or
no broker answers, the service tries again after the interval.
"""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import click
import msgspec
import trio

from rmq.cli.server.service_manager import notify
from rmq.core.clock import Clock
from rmq.core.errors import ConnectFailed
from rmq.http.server import HttpServer, Page, Pages
from rmq.observe.metrics.exposition import CONTENT_TYPE, Family, Sample, expose
from rmq_spark.export.exporter import Exporter
from rmq_spark.export.manifest import Manifest

QUIET_INTERVALS: Final = 3
"""Number of intervals without a batch or a complete table after which /healthz fails.
"""
QUIET_MS: Final = 60_000
"""Minimum time without an export before /healthz fails: one batch may take longer than
three short intervals.
"""
MAINTENANCE_MS: Final = 3_600_000
"""Pause after a maintenance that had nothing to do, because each maintenance reads all
manifests.
"""
ADVICE: Final = "choose another --listen (port 0 takes any free port)"


class ServiceProgress(msgspec.Struct):
    """Counters of a service since its start."""

    rounds: int = 0
    batches: int = 0
    files: int = 0
    rows: int = 0
    quarantined: int = 0
    """Number of messages whose bodies do not fit."""
    merged: int = 0
    """Number of small files that were merged."""
    batch_ms: int = 0
    problems: int = 0
    position: int = 0
    end: int = 0
    """The end of the messages at the start of the round."""
    complete_ms: int = 0
    """Unix time up to which the table is complete; 0 before that."""

    @property
    def round_lag(self) -> int:
        """Bytes of the log, or messages, that the round has not exported yet."""
        return max(0, self.end - self.position)


class LowWatermark:
    """The lowest position of all tables: the broker may remove the log before it."""

    def __init__(self, tables: int, report: Callable[[int], None]) -> None:
        self._tables = tables
        self._report = report
        self._positions: dict[str, int] = {}
        self._lock = threading.Lock()

    def report_position(self, table: str, position: int) -> None:
        """Save the position of a table; report the lowest position when the positions
        of all tables are known.
        """
        with self._lock:
            self._positions[table] = position
            if len(self._positions) == self._tables:
                self._report(min(self._positions.values()))


class ExportService:
    """Runs rounds of one exporter; other threads may read `progress` at any time."""

    def __init__(
        self,
        exporter: Exporter,
        *,
        interval_s: float,
        report: Callable[[int], None],
        write_line: Callable[[dict[str, Any]], None],
        clock: Clock,
        maintain: Callable[[], int] | None = None,
        table: str = "",
    ) -> None:
        self.table = table
        """The folder of the table; empty if there is only one."""
        self.position_unit = exporter.source.position_unit
        self.progress = ServiceProgress()
        self.problem: str | None = None
        self._exporter = exporter
        self._interval_s = interval_s
        self._report = report
        self._write_line = write_line
        self._clock = clock
        self._maintain = maintain
        """Merges small files and returns their number; None: no merges."""
        self._next_maintenance_ms = clock.steady_ms()
        self._stopping = trio.Event()
        self._well_ms = clock.steady_ms()
        """Time of the last commit, or when the table was complete for the last time."""

    def stop(self) -> None:
        """End after the running batch."""
        self._stopping.set()

    async def run(self) -> None:
        """Run round after round; raise an error of the first round."""
        while not self._stopping.is_set():
            started, before = (
                trio.current_time(),
                msgspec.structs.replace(self.progress),
            )
            await trio.to_thread.run_sync(self._run_round)
            self._write_line(self._describe_round(before))
            with trio.move_on_at(started + self._interval_s):
                await self._stopping.wait()

    def quiet_ms(self) -> int | None:
        """Return the time without an export; None if it is not too long."""
        quiet = self._clock.steady_ms() - self._well_ms
        limit = max(QUIET_MS, QUIET_INTERVALS * self._interval_s * 1000)
        return quiet if quiet > limit else None

    def _run_round(self) -> None:
        try:
            self._export()
            self.problem = None
        except Exception as error:
            # libraries of table formats raise errors of any kind
            if not self.progress.rounds and not isinstance(error, ConnectFailed):
                raise
            self.problem = str(error) or type(error).__name__
            self.progress.problems += 1
        self.progress.rounds += 1

    def _export(self) -> None:
        """Export up to the current end of the messages."""
        progress, started = self.progress, self._clock.now_ms()
        progress.end = self._exporter.end()
        progress.position = self._exporter.position()
        self._report(progress.position)
        while progress.round_lag and not self._stopping.is_set():
            batch_started = self._clock.steady_ms()
            manifest = self._exporter.run_batch()
            if manifest is None:
                break
            progress.batch_ms += self._clock.steady_ms() - batch_started
            self._count(manifest)
            self._report(manifest.end)
        if not progress.round_lag:
            progress.complete_ms = started
            self._well_ms = self._clock.steady_ms()
            self._maintain_table()

    def _maintain_table(self) -> None:
        """Merge small files while there is nothing to export."""
        if (
            self._maintain is None
            or self._clock.steady_ms() < self._next_maintenance_ms
        ):
            return
        merged = self._maintain()
        self.progress.merged += merged
        if not merged:
            self._next_maintenance_ms = self._clock.steady_ms() + MAINTENANCE_MS

    def _count(self, manifest: Manifest) -> None:
        self._well_ms = self._clock.steady_ms()
        self.progress.batches += 1
        self.progress.files += len(manifest.added)
        self.progress.rows += sum(file.rows for file in manifest.added)
        self.progress.quarantined += sum(file.rows for file in manifest.quarantined)
        self.progress.position = manifest.end

    def _describe_round(self, before: ServiceProgress) -> dict[str, Any]:
        now = self.progress
        return ({"table": self.table} if self.table else {}) | {
            "round": now.rounds,
            "batches": now.batches - before.batches,
            "files": now.files - before.files,
            "rows": now.rows - before.rows,
            "quarantined": now.quarantined - before.quarantined,
            "merged": now.merged - before.merged,
            "position": now.position,
            f"lag_{self.position_unit}": now.round_lag,
            "batch_ms": now.batch_ms - before.batch_ms,
            "problem": self.problem,
        }


def serve(services: Sequence[ExportService], address: tuple[str, int] | None) -> None:
    """Run services and their pages until SIGTERM, SIGHUP or Ctrl-C."""
    failures: list[Exception] = []
    trio.run(_serve, services, address, failures)
    # a nursery would wrap an error in a group
    for failure in failures:
        raise failure


async def _serve(
    services: Sequence[ExportService],
    address: tuple[str, int] | None,
    failures: list[Exception],
) -> None:
    async with trio.open_nursery() as nursery:
        try:
            if address is not None:
                server = HttpServer(*address, advice=ADVICE)
                await server.open()
                nursery.start_soon(server.run, create_pages(services))
                click.echo(f"pages at http://{address[0]}:{server.port}", err=True)
            await nursery.start(_stop_on_signal, services)
            notify("READY=1")
            await run_all(services, failures)
            notify("STOPPING=1")
        except Exception as error:
            failures.append(error)
        nursery.cancel_scope.cancel()


async def run_all(services: Sequence[ExportService], failures: list[Exception]) -> None:
    """Run services until they stop; if the first round of one fails, all end."""

    async def run(service: ExportService) -> None:
        try:
            await service.run()
        except Exception as error:
            failures.append(error)
            for each in services:
                each.stop()

    async with trio.open_nursery() as nursery:
        for service in services:
            nursery.start_soon(run, service)


async def _stop_on_signal(
    services: Sequence[ExportService], *, task_status: trio.TaskStatus[None]
) -> None:
    """Stop the services at the first signal; the next one ends the process."""
    ends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # by nohup
        ends.remove(signal.SIGHUP)
    with trio.open_signal_receiver(*ends) as signals:
        task_status.started()
        async for _ in signals:
            for service in services:
                service.stop()
            break
    # trio would wait for the batch before it raises KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def create_pages(services: Sequence[ExportService]) -> Pages:
    """Return the HTTP pages by path."""

    async def metrics() -> Page:
        body = bytes(await expose(_families(services), {}))
        return Page(body, content_type=CONTENT_TYPE)

    async def healthz() -> Page:
        await trio.lowlevel.checkpoint()
        problems = [line for line in map(_unhealthy_reason, services) if line]
        if not problems:
            return Page(b"ok\n")
        return Page("".join(problems).encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/metrics": metrics, "/healthz": healthz}


def _unhealthy_reason(service: ExportService) -> str:
    quiet = service.quiet_ms()
    if quiet is None:
        return ""
    name = f"{service.table}: " if service.table else ""
    reason = (
        service.problem
        or f"{service.progress.round_lag} {service.position_unit} are left"
    )
    return f"{name}nothing was exported for {quiet // 1000} s: {reason}\n"


def _families(services: Sequence[ExportService]) -> Iterator[Family]:
    samples: dict[tuple[str, str], list[Sample]] = {}
    for service in services:
        labels = {"table": service.table} if service.table else {}
        for name, text, value in _list_metrics(service.progress, service.position_unit):
            samples.setdefault((name, text), []).append(Sample(value, labels))
    for (name, text), found in samples.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield Family(f"rmq_follow_{name}", kind, text, found)


def _list_metrics(progress: ServiceProgress, unit: str) -> list[tuple[str, str, float]]:
    return [
        ("position", "Position up to which the table is complete.", progress.position),
        (f"lag_{unit}", f"{unit.title()} that this round still has to export.",
         progress.round_lag),
        ("complete_timestamp_seconds", "Time up to which the table was complete.",
         progress.complete_ms / 1000),
        ("rounds_total", "Rounds since the start.", progress.rounds),
        ("batches_total", "Batches committed.", progress.batches),
        ("batch_seconds_total", "Time for them.", progress.batch_ms / 1000),
        ("files_total", "Files added to the table.", progress.files),
        ("rows_total", "Rows added to the table.", progress.rows),
        ("quarantined_total", "Messages whose bodies do not fit.",
         progress.quarantined),
        ("merged_total", "Files merged into others.", progress.merged),
        ("problems_total", "Rounds that failed.", progress.problems),
    ]  # fmt: skip
