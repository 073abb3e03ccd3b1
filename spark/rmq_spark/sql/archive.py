"""Archive: the table of an export as DuckDB scans it, and its end in each log.

Manifests have the files of a Parquet table (`manifest.py`).  The Delta log or the
Iceberg snapshot has the files of other tables (`tables.py`).  So scans do not see files
of unfinished batches, and files that were merged. Each data file is a fragment with an
expression that is true for all its rows: broker, topic, physical offsets and store
times. The library skips files that a filter excludes, and filters the rows of the other
files.
"""

import os
import re
from collections.abc import Hashable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from rmq.core.errors import ConfigError
from rmq_spark.export.folder import Folder
from rmq_spark.export.manifest import STORE, DataFile, ExportLog, Manifest, brokers_of
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.task import ExportJob
from rmq_spark.segments.schema import BROKER_NAME
from rmq_spark.sql.tables import Table, TableFile, table_of

CONNECT_S: Final = 10
REQUEST_S: Final = 120
"""Time limits of an object store; Arrow's defaults are 1 and 3 seconds."""
_TIME: Final = pa.timestamp("us", tz="UTC")
_OURS: Final = re.compile(r"(.+)-\d{20}-\d{20}\.parquet")
"""Names of files that rmq-spark has written; the first part is the broker."""


class ArchiveSnapshot(NamedTuple):
    """The table as one statement sees it."""

    dataset: ds.Dataset
    ends: dict[str, int]
    """The physical offset up to which the table is complete, by broker."""


class Archive:
    """The table in the folder of an export; new batches are read before a statement."""

    def __init__(self, out: str) -> None:
        self.name = out
        self._folder = open_folder(out)
        self._logs: dict[str, ExportLog] = {}
        self._table: Table | None = None
        self._seen: Hashable = None
        self._frozen: ArchiveSnapshot | None = None

    def freeze(self) -> ArchiveSnapshot:
        """Return the current state of the table."""
        newest = {
            broker: last
            for broker, log in self._update_logs()
            if (last := log.last_manifest()) is not None
        }
        if not newest:
            raise ConfigError(f"archive {self.name} has no finished export")
        for broker, last in newest.items():
            if last.settings.feed != STORE:
                raise ConfigError(
                    f"archive {self.name} has live topics of {broker}, so it has no "
                    "end in the log of a store; read its files, or its table"
                )
        if self._frozen is None:
            settings = next(iter(newest.values())).settings
            self._table = table_of(ExportJob(self._folder.url, settings))
        # read the table after the manifests: it has all their batches, or more
        version = None if self._table is None else self._table.load_version()
        seen = [each.seq for each in newest.values()], version
        if self._frozen is None or seen != self._seen:
            self._seen = seen
            dataset = self._read(newest)
            self._frozen = ArchiveSnapshot(dataset, dict(self._exported_ends(newest)))
        return self._frozen

    def _update_logs(self) -> list[tuple[str, ExportLog]]:
        for broker in brokers_of(self._folder):
            self._logs.setdefault(broker, ExportLog(self._folder, broker))
        return list(self._logs.items())

    def _exported_ends(self, newest: dict[str, Manifest]) -> Iterator[tuple[str, int]]:
        """Yield each broker with the end of its batches in the table."""
        for broker, log in self._update_logs():
            last = newest.get(broker)
            batch = None if self._table is None else self._table.newest_batch(broker)
            if batch is not None and (last is None or batch > last.seq):
                # the manifest of this batch is not written yet
                yield broker, log.planned_end(batch)
            elif last is not None:
                yield broker, last.end

    def _read(self, newest: dict[str, Manifest]) -> ds.Dataset:
        schemas = [
            ExportJob(self._folder.url, last.settings).schema
            for last in newest.values()
        ]
        # some brokers may have more columns of bodies, or wider ones
        fields = list(pa.unify_schemas(schemas, promote_options="permissive"))
        if BROKER_NAME not in {field.name for field in fields}:
            fields.insert(1, pa.field(BROKER_NAME, pa.string()))
        files, root = _file_system(self._folder)
        form = ds.ParquetFileFormat()
        fragments = [
            form.make_fragment(
                f"{root}/{path}", filesystem=files, partition_expression=holds
            )
            for path, holds in self._files(newest)
        ]
        return ds.FileSystemDataset(fragments, pa.schema(fields), form, files)

    def _files(self, newest: dict[str, Manifest]) -> Iterator[TableFile]:
        written = {
            file.path: TableFile(file.path, _statistics_filter(file, broker))
            for broker, last in newest.items()
            for file in self._logs[broker].files(last.seq).values()
        }
        if self._table is None:
            yield from written.values()
            return
        for path, holds in self._table.files():
            if path in written:
                yield written[path]
                continue
            broker = self._broker_of(path)
            if broker is not None:
                holds = holds & (pc.field(BROKER_NAME) == broker)
            yield TableFile(path, holds)

    def _broker_of(self, path: str) -> str | None:
        """Return the broker of all rows of a file; None if it may have several."""
        if len(self._logs) == 1:
            return next(iter(self._logs))
        ours = _OURS.fullmatch(path.rpartition("/")[2])
        # file name: `<broker>` or `<broker>.<schema digest>`
        names = [] if ours is None else [ours[1], ours[1].rpartition(".")[0]]
        return next((n for n in map(unquote, names) if n in self._logs), None)


def _statistics_filter(file: DataFile, broker: str) -> pc.Expression:
    """Return an expression that is true for all rows of a file."""
    place, time = pc.field("physicalOffset"), pc.field("storeTimestamp")
    return (
        (pc.field(BROKER_NAME) == broker)
        & (pc.field("topic") == file.topic)
        & (place >= file.min_offset)
        & (place <= file.max_offset)
        & (time >= pa.scalar(file.min_store_ms * 1000, _TIME))
        & (time <= pa.scalar(file.max_store_ms * 1000 + 999, _TIME))
    )


def _file_system(folder: Folder) -> tuple[FileSystem, str]:
    """Return the file system of a folder, and the prefix of paths in it."""
    scheme, is_url, rest = folder.url.partition("://")
    if not is_url:
        return LocalFileSystem(), scheme
    given: dict[str, Any] = {"connect_timeout": CONNECT_S, "request_timeout": REQUEST_S}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        given["scheme"], _, given["endpoint_override"] = endpoint.partition("://")
    return S3FileSystem(**given), rest
