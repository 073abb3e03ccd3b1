"""`rmq-spark follow`: one export service for each table, until a signal."""

import json
from contextlib import ExitStack
from functools import partial
from typing import Any

import click

from rmq.core.clock import SystemClock
from rmq_spark.cli.config_file import read_config, tables_of
from rmq_spark.cli.exporters import create_exporter
from rmq_spark.cli.failures import report_failures
from rmq_spark.cli.options import ExportOptions, export_options, parse_interval
from rmq_spark.export.follow import ExportService, LowWatermark, serve
from rmq_spark.export.maintenance import compact_files
from rmq_spark.export.manifest import escape_name
from rmq_spark.export.open_folder import open_folder
from rmq_spark.segments.broker_requests import parse_address, report_offset


@click.command("follow")
@click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=read_config,
    help="TOML file with these options, without `--`.",
)
@export_options(master="none", batch_bytes="256m")
@click.option(
    "--interval",
    type=parse_interval,
    metavar="INTERVAL",
    default="60s",
    show_default=True,
    help="Export new messages at this interval.",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Serve /healthz and /metrics at this address."
)
@click.option(
    "--compact", is_flag=True, help="Merge small files while there are no new messages."
)
def follow_source(
    interval: float,
    listen: str | None,
    compact: bool,
    **given: Any,  # noqa: ANN401 - options, each of its type
) -> None:
    """Run as a service that exports new messages at each interval.

    The service writes one line of JSON for each round to stdout. After SIGTERM or
    Ctrl-C it finishes the running batch and ends. A second signal ends it at once; the
    next start finishes the batch.
    """
    options = ExportOptions(**given)
    tables = tables_of(options)
    limits = [each.limits() for each in tables]

    def report(position: int) -> None:
        if options.report_as and options.broker:
            report_offset(options.broker, options.report_as, position)

    watermark = LowWatermark(len(tables), report)
    with report_failures(), ExitStack() as held:
        address = parse_address(listen) if listen else None
        services = []
        for each, its_limits in zip(tables, limits, strict=True):
            exporter = create_exporter(each, its_limits)
            held.callback(exporter.source.close)
            broker_name = escape_name(each.broker_name)
            held.enter_context(open_folder(each.out).service_lock(broker_name))
            services.append(
                ExportService(
                    exporter,
                    interval_s=interval,
                    report=partial(watermark.report_position, each.out),
                    write_line=lambda line: click.echo(json.dumps(line)),
                    clock=SystemClock(),
                    maintain=partial(compact_files, exporter) if compact else None,
                    table=each.out if len(tables) > 1 else "",
                )
            )
        serve(services, address)
