"""`rmq-spark export`: batches until the source has nothing new."""

import json
import sys
import time
from collections import Counter
from contextlib import closing
from typing import Any, Final

import click

from rmq.cli.terminal.progress import Progress
from rmq_spark.cli.exporters import create_exporter
from rmq_spark.cli.failures import report_failures
from rmq_spark.cli.options import CONFIRM_OFFSET, ExportOptions, export_options
from rmq_spark.export.exporter import Exporter
from rmq_spark.export.manifest import Manifest
from rmq_spark.segments.broker_requests import report_offset

SHOWN_TOPICS: Final = 10
"""Maximum number of topics that a message names when an export has left them out."""
_MIB: Final = 1 << 20


@click.command("export")
@export_options(master="local[*]", batch_bytes="1g")
@CONFIRM_OFFSET
def export_messages(**given: Any) -> None:  # noqa: ANN401 - options, each of its type
    """Export all new messages: plan, write and commit, batch after batch."""
    options = ExportOptions(**given)
    limits = options.limits()
    with report_failures():
        exporter = create_exporter(options, limits)
        with closing(exporter.source):
            _BatchReport(exporter, options).run()


class _BatchReport:
    """A progress bar on a terminal; elsewhere a line of JSON for each batch."""

    def __init__(self, exporter: Exporter, options: ExportOptions) -> None:
        self._exporter = exporter
        self._source = exporter.source
        self._options = options
        self._start = time.monotonic()
        self._rows = 0
        self._left_out: Counter[str] = Counter()

    def run(self) -> None:
        """Run batches until there is nothing new, and show each."""
        first = self._exporter.position()
        self._report_position(first)
        is_log = self._source.position_unit == "bytes"
        scale = _MIB if is_log else 1
        total = max(0, self._exporter.end() - first) // scale
        with Progress(
            "MiB" if is_log else self._source.position_unit, total or 1
        ) as bar:
            while (manifest := self._exporter.run_batch()) is not None:
                self._count(manifest)
                note = f"{self._rows:,} rows" if is_log else ""
                bar.update((manifest.end - first) // scale, note)
        click.echo(f"{self._rows} rows exported", err=True)
        if self._left_out:
            click.echo(left_out_topics(self._left_out), err=True)

    def _report_position(self, position: int) -> None:
        if self._options.report_as and self._options.broker:
            report_offset(self._options.broker, self._options.report_as, position)

    def _count(self, manifest: Manifest) -> None:
        self._report_position(manifest.end)
        rows = sum(file.rows for file in manifest.added)
        self._rows += rows
        self._left_out.update(manifest.left_out)
        if sys.stderr.isatty():
            return
        seconds = max(time.monotonic() - self._start, 1e-6)
        line = {
            "batch": manifest.seq,
            "end": manifest.end,
            "files": len(manifest.added),
            "rows": rows,
            "rows_per_second": round(self._rows / seconds),
            f"lag_{self._source.position_unit}": max(
                0, self._source.end(manifest) - manifest.end
            ),
            "lost": manifest.lost,
            "left_out": manifest.left_out,
        }
        click.echo(json.dumps(line))


def left_out_topics(left_out: Counter[str]) -> str:
    """Return a sentence about left out messages, the largest topics first."""
    shown = left_out.most_common(SHOWN_TOPICS)
    parts = [f"{topic} {messages}" for topic, messages in shown]
    if len(left_out) > len(shown):
        parts.append(f"{len(left_out) - len(shown)} more topics")
    return (
        f"{left_out.total()} messages of system topics are left out: "
        f"{', '.join(parts)}; --include-system-topics exports them"
    )
