"""Creates exporters and their sources from the options of a command."""

from collections.abc import Collection

import click

from rmq.cli.tool_settings import connection_options, take_settings
from rmq_spark.cli.options import ExportOptions
from rmq_spark.export.body_schema import Bodies, parse_fields
from rmq_spark.export.exporter import Exporter, LocalRunner, Runner, SparkRunner
from rmq_spark.export.live_source import LiveSource
from rmq_spark.export.manifest import STORE, TOPICS, Settings
from rmq_spark.export.source import ExportLimits, ExportSource
from rmq_spark.export.store_source import StoreSource
from rmq_spark.live.client import ClientSettings
from rmq_spark.segments import commit_log
from rmq_spark.segments.schema import EXPORTED
from rmq_spark.segments.selection import TopicSelection
from rmq_spark.session import start_session


def open_source(
    store: str | None,
    name_server: str | None,
    limits: ExportLimits,
    topics: Collection[str],
    broker_name: str,
    *,
    with_system_topics: bool,
) -> ExportSource:
    """Return the log of a store, or the live topics of one broker."""
    if bool(store) == bool(name_server):
        raise click.UsageError("give one of --store, the folder of a store, and -n")
    if store:
        commit_log.find_segments(store)
        return StoreSource(store, limits)
    if limits.broker or limits.confirm_offset is not None:
        raise click.UsageError(
            "--broker and --confirm-offset are for --store: the broker reports where "
            "live topics end"
        )
    # no flags: user and TLS come from the settings that all tools share
    flags = dict.fromkeys(str(each.name) for each in connection_options())
    settings = take_settings(flags | {"namesrv": name_server})
    selection = TopicSelection(frozenset(topics) or None, None, with_system_topics)
    client = ClientSettings(settings.name_servers, settings.identity, selection)
    return LiveSource(client, broker_name, limits)


def create_exporter(options: ExportOptions, limits: ExportLimits) -> Exporter:
    """Return an exporter; without --master none this starts a Spark session."""
    bodies = _body_settings(options)
    columns = [name for name in EXPORTED if bodies is None or name != "body"]
    settings = Settings(
        broker_name=options.broker_name,
        table_format=options.table_format,
        columns=options.columns.split(",") if options.columns else columns,
        properties_format=options.properties_format,
        with_system_topics=options.include_system_topics,
        topics=sorted(
            {name.strip() for name in (options.topics or "").split(",")} - {""}
        ),
        bodies=bodies,
        table=options.table,
        feed=STORE if options.store else TOPICS,
    )
    source = open_source(
        options.store,
        options.name_server,
        limits,
        settings.topics,
        settings.broker_name,
        with_system_topics=settings.with_system_topics,
    )
    runner: Runner = LocalRunner()
    if options.master != "none":
        runner = SparkRunner(start_session(options.master))
    return Exporter(source, options.out, settings, runner, limits)


def _body_settings(options: ExportOptions) -> Bodies | None:
    form = options.body
    if form is None:
        if options.schema or options.avro_schemas:
            raise click.UsageError("--schema and --avro-schemas need --body")
        return None
    if not options.schema or not options.topics:
        raise click.UsageError(
            "--body needs --schema, and --topics whose bodies have it"
        )
    if (form == "avro") != bool(options.avro_schemas):
        raise click.UsageError("--body avro and --avro-schemas need each other")
    return Bodies(
        form=form,
        fields=parse_fields(options.schema),
        on_error=options.on_error,
        max_bad=options.max_bad,
        schemas=options.avro_schemas or "",
    )
