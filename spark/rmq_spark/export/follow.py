"""The service `rmq-spark follow`: rounds of an exporter, until it is stopped.

A round exports what the log has when the round begins, batch after batch, so that a
busy store does not get a commit for every few messages.  After a complete one small
files are merged, if that is wanted.  A stop waits for the batch
that is running.  The first round ends the service if it fails, because then an option
is wrong; a later one is repeated after the interval, as is one that finds no broker.
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
"""Intervals without a batch or a complete table after which /healthz is red."""
QUIET_MS: Final = 60_000
"""The least time for that: one batch may take longer than three short intervals."""
MAINTENANCE_MS: Final = 3_600_000
"""From one upkeep that had nothing to do to the next: it reads all manifests."""
ADVICE: Final = "choose another --listen (port 0 takes any free port)"


class ServiceProgress(msgspec.Struct):
    """What a follower has done since its start."""

    rounds: int = 0
    batches: int = 0
    files: int = 0
    rows: int = 0
    quarantined: int = 0
    """Messages whose bodies do not fit."""
    merged: int = 0
    """Small files that were merged into others."""
    batch_ms: int = 0
    problems: int = 0
    position: int = 0
    end: int = 0
    """Where the messages ended when the round began."""
    complete_ms: int = 0
    """Unix time up to which the table was complete; 0: not yet."""

    @property
    def lag(self) -> int:
        """What the round has left to export: bytes of a log, or messages."""
        return max(0, self.end - self.position)


class LowWatermark:
    """The place in the log that all tables have come to: what is before it may go."""

    def __init__(self, tables: int, report: Callable[[int], None]) -> None:
        self._tables = tables
        self._report = report
        self._positions: dict[str, int] = {}
        self._lock = threading.Lock()

    def report_position(self, table: str, position: int) -> None:
        """Report the least place, when each table has told its own."""
        with self._lock:
            self._positions[table] = position
            if len(self._positions) == self._tables:
                self._report(min(self._positions.values()))


class ExportService:
    """Rounds of one exporter; other threads may read `progress` at any time."""

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
        """Which one of several it is."""
        self.unit = exporter.source.unit
        self.progress = ServiceProgress()
        self.problem: str | None = None
        self._exporter = exporter
        self._interval_s = interval_s
        self._report = report
        self._write_line = write_line
        self._clock = clock
        self._maintain = maintain
        """Merges small files; returns how many."""
        self._next_maintenance_ms = clock.steady_ms()
        self._stopping = trio.Event()
        self._well_ms = clock.steady_ms()
        """When a batch was committed, or the table was complete, for the last time."""

    def stop(self) -> None:
        """End after the batch that is running."""
        self._stopping.set()

    async def run(self) -> None:
        """Round after round; an error of the first one leaves."""
        while not self._stopping.is_set():
            begun, before = trio.current_time(), msgspec.structs.replace(self.progress)
            await trio.to_thread.run_sync(self._round)
            self._write_line(self._line(before))
            with trio.move_on_at(begun + self._interval_s):
                await self._stopping.wait()

    def quiet_ms(self) -> int | None:
        """How long nothing was exported, if that is too long."""
        quiet = self._clock.steady_ms() - self._well_ms
        limit = max(QUIET_MS, QUIET_INTERVALS * self._interval_s * 1000)
        return quiet if quiet > limit else None

    def _round(self) -> None:
        try:
            self._export()
            self.problem = None
        except Exception as error:
            # libraries of tables have errors of any kind
            if not self.progress.rounds and not isinstance(error, ConnectFailed):
                raise
            self.problem = str(error) or type(error).__name__
            self.progress.problems += 1
        self.progress.rounds += 1

    def _export(self) -> None:
        """Export up to where the log ends now."""
        progress, begun = self.progress, self._clock.now_ms()
        progress.end = self._exporter.end()
        progress.position = self._exporter.position()
        self._report(progress.position)
        while progress.lag and not self._stopping.is_set():
            batch_begun = self._clock.steady_ms()
            manifest = self._exporter.run_batch()
            if manifest is None:
                break
            progress.batch_ms += self._clock.steady_ms() - batch_begun
            self._count(manifest)
            self._report(manifest.end)
        if not progress.lag:
            progress.complete_ms = begun
            self._well_ms = self._clock.steady_ms()
            self._maintain_table()

    def _maintain_table(self) -> None:
        """While there is nothing to export: merge small files, until none are left."""
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

    def _line(self, before: ServiceProgress) -> dict[str, Any]:
        now = self.progress
        return ({"table": self.table} if self.table else {}) | {
            "round": now.rounds,
            "batches": now.batches - before.batches,
            "files": now.files - before.files,
            "rows": now.rows - before.rows,
            "quarantined": now.quarantined - before.quarantined,
            "merged": now.merged - before.merged,
            "position": now.position,
            f"lag_{self.unit}": now.lag,
            "batch_ms": now.batch_ms - before.batch_ms,
            "problem": self.problem,
        }


def serve(followers: Sequence[ExportService], address: tuple[str, int] | None) -> None:
    """Run followers and their pages until SIGTERM or Ctrl-C."""
    failures: list[Exception] = []
    trio.run(_serve, followers, address, failures)
    # an error that left a nursery would be a group
    for failure in failures:
        raise failure


async def _serve(
    followers: Sequence[ExportService],
    address: tuple[str, int] | None,
    failures: list[Exception],
) -> None:
    async with trio.open_nursery() as nursery:
        try:
            if address is not None:
                server = HttpServer(*address, advice=ADVICE)
                await server.open()
                nursery.start_soon(server.run, pages(followers))
                click.echo(f"pages at http://{address[0]}:{server.port}", err=True)
            await nursery.start(_stop_on_signal, followers)
            notify("READY=1")
            await run_all(followers, failures)
            notify("STOPPING=1")
        except Exception as error:
            failures.append(error)
        nursery.cancel_scope.cancel()


async def run_all(
    followers: Sequence[ExportService], failures: list[Exception]
) -> None:
    """Run followers until they are stopped; one whose first round fails ends all."""

    async def run(follower: ExportService) -> None:
        try:
            await follower.run()
        except Exception as error:
            failures.append(error)
            for each in followers:
                each.stop()

    async with trio.open_nursery() as nursery:
        for follower in followers:
            nursery.start_soon(run, follower)


async def _stop_on_signal(
    followers: Sequence[ExportService], *, task_status: trio.TaskStatus[None]
) -> None:
    """The first signal is a wish; the next one ends the process."""
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        task_status.started()
        async for _ in signals:
            for follower in followers:
                follower.stop()
            break
    # else trio would wait for the batch before it raises KeyboardInterrupt
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def pages(followers: Sequence[ExportService]) -> Pages:
    """Return the pages by path."""

    async def metrics() -> Page:
        body = await expose(_families(followers), {})
        return Page(body, content_type=CONTENT_TYPE)

    async def healthz() -> Page:
        await trio.lowlevel.checkpoint()
        told = [line for line in map(_why_red, followers) if line]
        if not told:
            return Page(b"ok\n")
        return Page("".join(told).encode(), HTTPStatus.SERVICE_UNAVAILABLE)

    return {"/metrics": metrics, "/healthz": healthz}


def _why_red(follower: ExportService) -> str:
    quiet = follower.quiet_ms()
    if quiet is None:
        return ""
    name = f"{follower.table}: " if follower.table else ""
    reason = follower.problem or f"{follower.progress.lag} {follower.unit} are left"
    return f"{name}nothing was exported for {quiet // 1000} s: {reason}\n"


def _families(followers: Sequence[ExportService]) -> Iterator[Family]:
    samples: dict[tuple[str, str], list[Sample]] = {}
    for follower in followers:
        labels = {"table": follower.table} if follower.table else {}
        for name, text, value in _figures(follower.progress, follower.unit):
            samples.setdefault((name, text), []).append(Sample(value, labels))
    for (name, text), found in samples.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        yield Family(f"rmq_follow_{name}", kind, text, found)


def _figures(progress: ServiceProgress, unit: str) -> list[tuple[str, str, float]]:
    return [
        ("position", "Place up to which the table is complete.", progress.position),
        (f"lag_{unit}", f"{unit.title()} that the round has left to export.",
         progress.lag),
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
