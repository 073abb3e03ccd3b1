"""The file of `rmq-spark follow --config`: its options in TOML, without `--`.

A section `[topics.NAME]`, or several `[[topics.NAME]]`, is a table of one topic.  The
command has these tables in addition to the table of its own options.
"""

import tomllib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from rmq.config.option import nearest_name
from rmq_spark.cli.options import ExportOptions

_TABLES: Final = "rmq_spark.tables"
"""Key of the click context for the options of the sections."""
_NOT_INHERITED: Final = dict.fromkeys(("columns", "body", "schema", "avro_schemas"))
_OF_SECTIONS: Final = (
    "out", "format", "table", "columns", "properties-format", "body", "schema",
    "on-error", "max-bad", "avro-schemas",
)  # fmt: skip
"""Options of a section; the command has the other options."""


def read_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Take options from a TOML file; options of the command line win."""
    if path is None:
        return
    try:
        values = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path} cannot be read: {error}") from error
    known = {
        each.opts[0].lstrip("-"): each
        for each in context.command.params
        if each.expose_value
    }
    topics = values.get("topics")
    if isinstance(topics, dict):
        del values["topics"]
        context.meta[_TABLES] = list(_read_sections(context, path, topics))
    checked = _check_values(path, values, known)
    context.default_map = {known[name].name: checked[name] for name in checked}


def tables_of(options: ExportOptions) -> list[ExportOptions]:
    """Return the options of each table: the command's own, then the sections."""
    sections = click.get_current_context().meta.get(_TABLES, [])
    tables = [
        options,
        *(
            msgspec.structs.replace(options, **(_NOT_INHERITED | section))
            for section in sections
        ),
    ]
    folders = Counter(each.out.rstrip("/") for each in tables)
    for folder, count in folders.items():
        if count > 1:
            raise click.UsageError(f"{count} tables have the folder {folder}")
    return tables


def _check_values(
    where: str, values: dict[str, Any], known: Collection[str]
) -> dict[str, str | bool]:
    """Return the values as click takes them."""
    for name, value in values.items():
        if name not in known:
            near = nearest_name(name, known)
            hint = f"; did you mean {near}?" if near else ""
            raise click.BadParameter(f"{where}: there is no option {name}{hint}")
        if not isinstance(value, bool | int | float | str):
            raise click.BadParameter(f"{where}: {name} is neither text nor number")
    return {n: v if isinstance(v, bool) else str(v) for n, v in values.items()}


def _read_sections(
    context: click.Context, path: str, topics: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield the options of each section by the names of the parameters."""
    known = {each.opts[0].lstrip("-"): each for each in context.command.params}
    for topic, entry in topics.items():
        for section in entry if isinstance(entry, list) else [entry]:
            where = f"{path}: topics.{topic}"
            if not isinstance(section, dict):
                raise click.BadParameter(f"{where} is no section")
            values = _check_values(where, section, _OF_SECTIONS)
            if "out" not in values:
                raise click.BadParameter(f"{where} needs out, the folder of its table")
            yield {
                str(known[name].name): known[name].process_value(context, value)
                for name, value in values.items()
            } | {"topics": topic}
