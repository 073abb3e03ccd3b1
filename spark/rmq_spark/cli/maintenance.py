"""`rmq-spark status | forget | vacuum | optimize`: commands about one table."""

import json
import time
from contextlib import closing

import click

from rmq_spark.cli.exporters import open_source
from rmq_spark.cli.failures import report_failures
from rmq_spark.cli.options import BROKER, CONFIRM_OFFSET, OUT, SOURCE, TABLE_BROKER
from rmq_spark.export.exporter import Exporter, LocalRunner
from rmq_spark.export.maintenance import export_status, only_broker, vacuum
from rmq_spark.export.manifest import ExportLog, Manifest
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import ExportLimits, ExportSource
from rmq_spark.segments import broker_requests


def _last_batch(out: str, broker_name: str | None) -> tuple[str, Manifest | None]:
    """Return the broker of a table, and the manifest of its last batch."""
    folder = open_folder(out)
    broker = only_broker(folder, broker_name) or ""
    return broker, ExportLog(folder, broker).last_manifest()


def _open_table_source(
    store: str | None,
    name_server: str | None,
    limits: ExportLimits,
    broker: str,
    last: Manifest | None,
) -> ExportSource:
    """Open the source of a table; its last manifest has the selected topics."""
    settings = None if last is None else last.settings
    return open_source(
        store,
        name_server,
        limits,
        settings.topics if settings else (),
        broker,
        with_system_topics=bool(settings and settings.with_system_topics),
    )


@click.command("status")
@SOURCE
@BROKER
@CONFIRM_OFFSET
@TABLE_BROKER
def show_status(
    out: str,
    store: str | None,
    name_server: str | None,
    broker: str | None,
    confirm_offset: int | None,
    broker_name: str | None,
) -> None:
    """Show the progress of an export as JSON: its lag in bytes, rows and seconds."""
    with report_failures():
        limits = ExportLimits(confirm_offset=confirm_offset, broker=broker)
        name, last = _last_batch(out, broker_name)
        source = _open_table_source(store, name_server, limits, name, last)
        with closing(source):
            status = export_status(source, out, broker_name)
        click.echo(json.dumps(status, indent=2))


@click.command("forget")
@click.option(
    "--broker",
    required=True,
    metavar="HOST:PORT",
    help="Broker that does not delete log files until this exporter has read them.",
)
@click.option(
    "--report-as", required=True, metavar="NAME", help="Name of the exporter."
)
def forget_exporter(broker: str, report_as: str) -> None:
    """Remove an exporter from a broker, so that the broker keeps no files for it."""
    with report_failures():
        broker_requests.forget_exporter(broker, report_as)


@click.command("vacuum")
@OUT
@click.option(
    "--older-than-hours",
    type=float,
    default=24.0,
    show_default=True,
    help="Keep younger files, because a writer may need them.",
)
def remove_orphans(out: str, older_than_hours: float) -> None:
    """Remove files that are not part of the table."""
    with report_failures():
        removed = vacuum(out, older_than_hours=older_than_hours, now=time.time())
        for path in removed:
            click.echo(path)
        click.echo(f"{len(removed)} files removed", err=True)


@click.command("optimize")
@SOURCE
@TABLE_BROKER
def merge_past_days(
    out: str, store: str | None, name_server: str | None, broker_name: str | None
) -> None:
    """Merge the small files of past days.

    Until the next vacuum a plain reader of the folder sees both old and new files; a
    reader of the manifests sees each row once.
    """
    with report_failures():
        broker, last = _last_batch(out, broker_name)
        if last is None:
            click.echo(f"{out} has no export", err=True)
            return
        source = _open_table_source(store, name_server, ExportLimits(), broker, last)
        with closing(source):
            exporter = Exporter(source, out, last.settings, LocalRunner())
            manifest = exporter.optimize()
        merged = len(manifest.removed) if manifest else 0
        click.echo(
            f"{merged} files merged into {len(manifest.added) if manifest else 0}"
        )
