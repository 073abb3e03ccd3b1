"""Archive: the table of an export as DuckDB scans it, and where the log goes on.

A table is what its manifests name (`manifest.py`), so files of a batch that is not
finished, and those that were merged into others, are not seen.  Each file is a fragment
with what holds for all its rows (broker, topic, places in the log, store times);
pyarrow leaves out the files that a filter excludes, and the rows in the others.
"""

import os
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import FileSystem, LocalFileSystem, S3FileSystem

from rmq.errors import ConfigError
from rmq_spark.export import ExportJob
from rmq_spark.folder import Folder, folder_of
from rmq_spark.manifest import DataFile, ExportLog, Manifest, brokers_of
from rmq_spark.schema import BROKER_NAME

_TIME: Final = pa.timestamp("us", tz="UTC")


class FrozenArchive(NamedTuple):
    """The table as one statement sees it."""

    dataset: ds.Dataset
    ends: dict[str, int]
    """For each broker, the place in its log up to which the table is complete."""


class Archive:
    """The folder of an export; its manifests are read again when there are new ones."""

    def __init__(self, out: str) -> None:
        self.name = out
        self._folder = folder_of(out)
        self._logs: dict[str, ExportLog] = {}
        self._seen: dict[str, Manifest] = {}
        self._frozen: FrozenArchive | None = None

    def freeze(self) -> FrozenArchive:
        """The table as it is now."""
        for broker in brokers_of(self._folder):
            self._logs.setdefault(broker, ExportLog(self._folder, broker))
        newest = {
            broker: last
            for broker, log in self._logs.items()
            if (last := log.last()) is not None
        }
        if not newest:
            raise ConfigError(f"archive {self.name} has no finished export")
        if self._frozen is None or newest != self._seen:
            self._seen = newest
            self._frozen = self._read(newest)
        return self._frozen

    def _read(self, newest: dict[str, Manifest]) -> FrozenArchive:
        schemas = [
            ExportJob(self._folder.url, last.settings).schema
            for last in newest.values()
        ]
        # columns of bodies may be new, or wider, with some brokers only
        fields = list(pa.unify_schemas(schemas, promote_options="permissive"))
        if BROKER_NAME not in {field.name for field in fields}:
            fields.insert(1, pa.field(BROKER_NAME, pa.string()))
        files, root = _file_system(self._folder)
        form = ds.ParquetFileFormat()
        fragments = [
            form.make_fragment(
                f"{root}/{file.path}",
                filesystem=files,
                partition_expression=_holds(file, broker),
            )
            for broker, last in newest.items()
            for file in self._logs[broker].files(last.seq).values()
        ]
        dataset = ds.FileSystemDataset(fragments, pa.schema(fields), form, files)
        return FrozenArchive(dataset, {name: each.end for name, each in newest.items()})


def _holds(file: DataFile, broker: str) -> pc.Expression:
    """What is true for all rows of a file."""
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
    """What reads the files, and what comes before their paths."""
    scheme, is_url, rest = folder.url.partition("://")
    if not is_url:
        return LocalFileSystem(), scheme
    given: dict[str, Any] = {}
    if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
        given["scheme"], _, given["endpoint_override"] = endpoint.partition("://")
    return S3FileSystem(**given), rest
