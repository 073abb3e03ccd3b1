"""The files of an exported table that its own format names: a Delta log, or a snapshot.

Libraries merge, rewrite and remove files of such a table, which the manifests of the
export do not see.  A table also says which batch of each broker it has, and that may be
one whose manifest is not there yet.
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
    """In the folder of the export."""
    holds: pc.Expression
    """What is true for all its rows."""


class Table(Protocol):
    """A table of a format other than rmq's own manifests."""

    def look(self) -> Hashable:
        """Find the table as it is now; its version."""

    def batch(self, broker_name: str) -> int | None:
        """The newest batch of a broker that it has."""

    def files(self) -> list[TableFile]:
        """Its files."""


def table_of(job: ExportJob) -> Table | None:
    """The table of an export; None if manifests alone define it."""
    table_format = job.settings.table_format
    if table_format == "parquet":
        return None
    check_library(table_format)
    return DeltaFiles(job) if table_format == "delta" else IcebergFiles(job)


class DeltaFiles:
    """The files that the log of a Delta table has."""

    def __init__(self, job: ExportJob) -> None:
        self._url = job.folder.url
        self._table: Any = None

    def look(self) -> Hashable:
        """Load the table; -1: there is none yet."""
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            self._table = DeltaTable(self._url)
        except TableNotFoundError:
            return -1
        return int(self._table.version())

    def batch(self, broker_name: str) -> int | None:
        """The version of the broker's application."""
        if self._table is None:
            return None
        version: int | None = self._table.transaction_version(delta_app(broker_name))
        return version

    def files(self) -> list[TableFile]:
        """What is added and not removed."""
        if self._table is None:
            return []
        from deltalake.exceptions import DeltaProtocolError

        try:
            self._table.to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise _unreadable(self._url, error) from error
        actions = pa.table(self._table.get_add_actions(flatten=True)).to_pylist()
        # paths in the log are escaped
        return [TableFile(unquote(each["path"]), _holds(each)) for each in actions]


def _holds(action: dict[str, Any]) -> pc.Expression:
    holds = EVERYTHING
    if (topic := action.get("partition.topic")) is not None:
        holds = pc.field("topic") == topic
    if (first := action.get(f"min.{_PLACE}")) is not None:
        holds = holds & (pc.field(_PLACE) >= first)
    if (last := action.get(f"max.{_PLACE}")) is not None:
        holds = holds & (pc.field(_PLACE) <= last)
    return holds


class IcebergFiles:
    """The files that the current snapshot of an Iceberg table has."""

    def __init__(self, job: ExportJob) -> None:
        root = job.folder.url
        self._url = root
        self._root = root if "://" in root else f"file://{root}"
        self._committer = IcebergCommitter(TableTarget(job, "", job.schema))
        self._table: Any = None

    def look(self) -> Hashable:
        """Load the table; None: there is none yet."""
        self._table = self._committer.load()
        return None if self._table is None else str(self._table.metadata_location)

    def batch(self, broker_name: str) -> int | None:
        """The property with the number of the batch."""
        if self._table is None:
            return None
        number = self._table.properties.get(iceberg_property(broker_name))
        return None if number is None else int(number)

    def files(self) -> list[TableFile]:
        """What the snapshot has, which must be whole files."""
        if self._table is None:
            return []
        tasks = list(self._table.scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise _unreadable(
                self._url, "it has files of deleted rows; rewrite its data files"
            )
        return [
            TableFile(self._path(task.file.file_path), EVERYTHING) for task in tasks
        ]

    def _path(self, url: str) -> str:
        path = url.removeprefix(f"{self._root}/")
        if path == url:
            raise _unreadable(self._url, f"{url} is not in its folder")
        return path


def _unreadable(url: str, problem: object) -> StoreError:
    return StoreError(
        f"the table in {url} was changed by another program, so that rmq sql cannot "
        f"read it: {problem}"
    )
