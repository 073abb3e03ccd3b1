"""The files of an exported Delta or Iceberg table, from its log or its snapshot.

Other programs merge, rewrite and remove files of such a table, and manifests do not
have these changes. A table also has the newest batch of each broker; the manifest of
this batch may not be written yet.
"""

from collections.abc import Hashable
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from rmq.core.errors import StoreError
from rmq_spark.export.committers import (
    IcebergCommitter,
    TableTarget,
    check_library,
    delta_app,
    iceberg_property,
)
from rmq_spark.export.task import ExportJob

EVERYTHING: Final = pc.scalar(True)
_PLACE: Final = "physicalOffset"


class TableFile(NamedTuple):
    """A file that is part of a table."""

    path: str
    """Relative to the folder of the export."""
    holds: pc.Expression
    """An expression that is true for all its rows."""


class Table(Protocol):
    """A table whose own format has its list of files."""

    def load_version(self) -> Hashable:
        """Load the current table; returns its version."""

    def newest_batch(self, broker_name: str) -> int | None:
        """Return the newest batch of a broker in the table, or None."""

    def files(self) -> list[TableFile]:
        """Return the files of the table."""


def table_of(job: ExportJob) -> Table | None:
    """Return the table of an export; None if manifests alone define it."""
    table_format = job.settings.table_format
    if table_format == "parquet":
        return None
    check_library(table_format)
    return DeltaFiles(job) if table_format == "delta" else IcebergFiles(job)


class DeltaFiles:
    """The files in the log of a Delta table."""

    def __init__(self, job: ExportJob) -> None:
        self._url = job.folder.url
        self._table: Any = None

    def load_version(self) -> Hashable:
        """Load the table; returns its version, -1 before the first batch."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            self._table = DeltaTable(self._url)
        except TableNotFoundError:
            return -1
        return int(self._table.version())

    def newest_batch(self, broker_name: str) -> int | None:
        """Return the version of the broker's application."""
        if self._table is None:
            return None
        version: int | None = self._table.transaction_version(delta_app(broker_name))
        return version

    def files(self) -> list[TableFile]:
        """Return the files that were added and not removed."""
        if self._table is None:
            return []
        from deltalake.exceptions import DeltaProtocolError

        try:
            self._table.to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise _unreadable_error(self._url, error) from error
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        # the log has escaped paths
        return [
            TableFile(unquote(each["path"]), _action_filter(each)) for each in actions
        ]


def _action_filter(action: dict[str, Any]) -> pc.Expression:
    holds = EVERYTHING
    if (topic := action.get("partition.topic")) is not None:
        holds = pc.field("topic") == topic
    if (first := action.get(f"min.{_PLACE}")) is not None:
        holds = holds & (pc.field(_PLACE) >= first)
    if (last := action.get(f"max.{_PLACE}")) is not None:
        holds = holds & (pc.field(_PLACE) <= last)
    return holds


class IcebergFiles:
    """The files in the current snapshot of an Iceberg table."""

    def __init__(self, job: ExportJob) -> None:
        root = job.folder.url
        self._url = root
        self._root = root if "://" in root else f"file://{root}"
        self._committer = IcebergCommitter(TableTarget(job, "", job.schema))
        self._table: Any = None

    def load_version(self) -> Hashable:
        """Load the table; returns its version, None before the first batch."""
        self._table = self._committer.load()
        return None if self._table is None else str(self._table.metadata_location)

    def newest_batch(self, broker_name: str) -> int | None:
        """Return the batch number in the property of the broker."""
        if self._table is None:
            return None
        number = self._table.properties.get(iceberg_property(broker_name))
        return None if number is None else int(number)

    def files(self) -> list[TableFile]:
        """Return the files of the snapshot; StoreError if it has delete files."""
        if self._table is None:
            return []
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise _unreadable_error(
                self._url, "it has delete files; rewrite its data files"
            )
        return [
            TableFile(self._path(task.file.file_path), EVERYTHING) for task in tasks
        ]

    def _path(self, url: str) -> str:
        path = url.removeprefix(f"{self._root}/")
        if path == url:
            raise _unreadable_error(self._url, f"{url} is not in its folder")
        return path


def _unreadable_error(url: str, problem: object) -> StoreError:
    return StoreError(
        f"another program has changed the table in {url}, so that rmq sql cannot read "
        f"it: {problem}"
    )
