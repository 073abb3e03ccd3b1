"""One task of an export: writes the messages of a split to files.

A file is `topic=<T>/dt=<UTC day>/<broker>-<start20>-<end20>.parquet`. The name has the
positions of the split in the plan, so that a second writer writes the same rows. A
file is never replaced, because tables store its size.  If a file exists, the second
writer accepts it with the same rows, and fails with other rows.

If bodies become columns, the name starts with `<broker>.<schema digest>`.  Rows whose
bodies do not fit are in files with the same names below `_quarantine/`.
"""

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rmq.core.errors import ConfigError, StoreError
from rmq_spark.export.body_schema import ERROR
from rmq_spark.export.folder import Draft, Folder
from rmq_spark.export.manifest import DataFile, Settings, escape_name
from rmq_spark.export.open_folder import open_folder
from rmq_spark.export.source import Part
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.reader import ReadSettings, read_settings
from rmq_spark.segments.schema import Column, arrow_schema, columns_of

BATCH_ROWS: Final = 65_536
MAX_OPEN_FILES: Final = 512
"""Limit of topics and days in one split; each needs a descriptor."""
_MAX_NAME: Final = 255
QUARANTINE: Final = "_quarantine/"
"""Prefix of the paths of rows whose bodies do not fit."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_NEEDED: Final = ("topic", "storeTimestamp", "physicalOffset", "queueId", "queueOffset")
_PLAIN: Final = frozenset({"body", "keys", "msgId", "offsetMsgId", "properties"})
"""Columns without a dictionary, because their values seldom repeat."""


@dataclass(frozen=True)
class ExportJob:
    """The settings of a task; pickled for the workers."""

    out: str
    settings: Settings
    skip_corrupt: bool = False
    allow_loss: bool = False
    single_writer: bool = False

    @property
    def folder(self) -> Folder:
        """The folder of the export, in the process of the worker."""
        return open_folder(self.out, single_writer=self.single_writer)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the table, without the columns of bodies."""
        options = self._options(self.settings.columns)
        missing = [n for n in _NEEDED if n not in {c.name for c in columns_of(options)}]
        if missing:
            raise StoreError(f"an export needs the columns {', '.join(missing)}")
        return columns_of(options)

    @property
    def read_settings(self) -> ReadSettings:
        """The settings of the reader for this table."""
        names = [column.name for column in self.columns]
        if self.settings.bodies is not None and "body" not in names:
            names.append("body")
        options = self._options(names)
        return read_settings(options, columns_of(options))

    @property
    def schema(self) -> pa.Schema:
        """The schema of the table."""
        schema = arrow_schema(self.columns)
        bodies = self.settings.bodies
        if bodies is None:
            return schema
        names = {name.lower() for name in (*schema.names, "dt", "body", ERROR)}
        for column in bodies.schema:
            if column.name.lower() in names:
                raise ConfigError(
                    f"column {column.name} of the bodies has the name of a column of "
                    "messages: leave out one of them, by --columns or by --schema"
                )
            schema = schema.append(column)
        return schema

    @property
    def quarantine_schema(self) -> pa.Schema:
        """The schema of the quarantine."""
        read = arrow_schema(self.read_settings.columns)
        return read.append(pa.field(ERROR, pa.string()))

    def _options(self, columns: Iterable[str]) -> Options:
        settings = self.settings
        chosen = {"subscribe": ",".join(settings.topics)} if settings.topics else {}
        return Options(
            {
                "store": "-",
                "columns": ",".join(columns),
                **chosen,
                "propertiesFormat": settings.properties_format,
                "includeSystemTopics": str(settings.with_system_topics).lower(),
                "corruptRecords": "skip" if self.skip_corrupt else "fail",
                "brokerName": settings.broker_name,
            }
        )

    @property
    def keeps_topic(self) -> bool:
        """Whether `topic` is a column of the files; if not, only the path has the
        topic.
        """
        return self.settings.table_format == "iceberg"


@dataclass(frozen=True)
class TaskResult:
    """The outcome of one task."""

    files: list[DataFile]
    lost: tuple[int, int] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    """Number of messages of each system topic that was not exported."""
    misfits: int = 0
    """Number of bodies that do not fit."""
    example: str = ""
    """The reason for one of these bodies."""


def export_range(job: ExportJob, part: Part) -> TaskResult:
    """Write the files of one split."""
    try:
        return _write_range(job, part)
    except LostData:
        if not job.allow_loss:
            raise
    rest = part.readable_part()
    written = TaskResult([]) if rest is None else _write_range(job, rest, adopts=True)
    # a killed run may have written more rows than exist now
    files = find_existing(job.folder, {range_name(job.settings, part.start, part.end)})
    return replace(written, files=files, lost=(part.start, part.end))


def _write_range(job: ExportJob, part: Part, *, adopts: bool = False) -> TaskResult:
    """Write the files; with `adopts` accept existing files with other rows."""
    name = range_name(job.settings, part.start, part.end)
    writers: dict[tuple[str, str, str], FileWriter] = {}
    reading = job.read_settings
    router = _RowRouter(job)
    try:
        for batch in part.read_batches(reading, BATCH_ROWS):
            for prefix, chosen in router.route_batch(batch):
                for topic, day, rows in split_batch(chosen):
                    writer = writers.get((prefix, topic, day))
                    if writer is None:
                        _check_count(len(writers), part)
                        writer = FileWriter(
                            job, prefix, topic, day, name, adopts=adopts
                        )
                        writers[prefix, topic, day] = writer
                    writer.add(rows)
        return TaskResult(
            [writer.finish() for writer in writers.values()],
            left_out=part.count_left_out(reading),
            misfits=router.misfits,
            example=router.example,
        )
    except OSError as error:
        raise StoreError(
            f"cannot write {error.filename or job.out}: {error.strerror or error}; "
            "nothing of this batch is part of the table, run the export again"
        ) from error
    finally:
        router.close()
        for writer in writers.values():
            writer.discard()


class _RowRouter:
    """Routes the rows of a batch to the table, or to the quarantine."""

    def __init__(self, job: ExportJob) -> None:
        self.misfits = 0
        self.example = ""
        self._bodies = None
        if job.settings.bodies is not None:
            # imported on use: duckdb is an extra
            from rmq_spark.export.body_columns import BodyParser

            keeps_body = "body" in job.schema.names
            self._bodies = BodyParser(job.settings.bodies, keeps_body=keeps_body)

    def route_batch(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield prefixes of paths, and the rows of each."""
        if self._bodies is None:
            yield "", batch
            return
        fitted = self._bodies.parse_batch(batch)
        self.misfits += fitted.misfits
        self.example = self.example or fitted.example
        for prefix, rows in (("", fitted.rows), (QUARANTINE, fitted.quarantined)):
            if rows.num_rows:
                yield prefix, rows

    def close(self) -> None:
        if self._bodies is not None:
            self._bodies.close()


def range_name(settings: Settings, start: int, end: int) -> str:
    """Return the name of the files of a split."""
    writer = escape_name(settings.broker_name)
    if settings.bodies is not None:
        writer += f".{settings.bodies.digest}"
    return f"{writer}-{start:020d}-{end:020d}.parquet"


def split_batch(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield the rows of a batch by topic and day, each group in log order."""
    topics = pc.dictionary_encode(batch.column("topic"))
    dates = pc.cast(batch.column("storeTimestamp"), pa.date32())
    days = pc.cast(pc.cast(dates, pa.int32()), pa.int64())
    keys = pc.add(pc.multiply(days, len(topics.dictionary)), topics.indices)
    runs = pc.run_end_encode(keys)
    if len(runs.values) > len(pc.unique(keys)):
        order = pc.array_sort_indices(keys)
        batch, keys = batch.take(order), keys.take(order)
        runs = pc.run_end_encode(keys)
    start = 0
    for end, key in zip(
        runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True
    ):
        day, topic = divmod(key, len(topics.dictionary))
        yield (
            topics.dictionary[topic].as_py(),
            _day_text(day),
            batch.slice(start, end - start),
        )
        start = end


def _day_text(number: int) -> str:
    """Return a day since 1970 as text, clamped to the years 1 to 9999."""
    ordinal = _EPOCH + number
    return date.fromordinal(min(max(ordinal, 1), date.max.toordinal())).isoformat()


class FileWriter:
    """Writes one file, which is a draft until `finish`."""

    def __init__(
        self,
        job: ExportJob,
        prefix: str,
        topic: str,
        day: str,
        name: str,
        *,
        adopts: bool = False,
    ) -> None:
        """With `adopts` an existing file is accepted, also with other rows."""
        path = f"{prefix}topic={escape_name(topic)}/dt={day}/{name}"
        self._file = DataFile(path, topic, day, 0, 0, -1, -1, -1, -1, {})
        self._folder = job.folder
        self._draft: Draft | None = None
        self._keeps_topic = job.keeps_topic
        self._adopts = adopts
        self._writer: pq.ParquetWriter | None = None
        self._summary = _FileStatistics()
        if len(os.fsencode(f"topic={escape_name(topic)}")) > _MAX_NAME:
            raise StoreError(f"topic {topic[:40]}... is too long for a folder name")

    def add(self, rows: pa.RecordBatch) -> None:
        """Append rows to the file."""
        self._summary.add(rows)
        if not self._keeps_topic:
            rows = rows.drop_columns(["topic"])
        if self._writer is None:
            self._draft = self._folder.create_draft(self._file.path)
            self._writer = _parquet_writer(self._draft.target, rows.schema)
        self._writer.write_batch(rows)

    def finish(self) -> DataFile:
        """Close the draft and publish it; returns the entry for the manifest."""
        assert self._draft is not None, "the first rows create a file"
        assert self._writer is not None, "finish is called once"
        self._writer.close()
        self._writer = None
        _publish_draft(self._folder, self._draft, self._file.path, adopts=self._adopts)
        return self._summary.describe_file(
            self._file, self._folder.size(self._file.path)
        )

    def discard(self) -> None:
        """Remove the draft, if it is not published."""
        if self._writer is not None:
            # do not hide the first error
            with contextlib.suppress(OSError):
                self._writer.close()
        if self._draft is not None:
            self._draft.discard()


class _FileStatistics:
    """Statistics of one file for the manifest: rows, offsets and times."""

    def __init__(self) -> None:
        self._rows = 0
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._queues: dict[str, list[int]] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows
        self._offsets += _min_max(rows.column("physicalOffset"))
        self._times += _min_max(pc.cast(rows.column("storeTimestamp"), pa.int64()))
        table = pa.table(
            {"id": rows.column("queueId"), "offset": rows.column("queueOffset")}
        )
        grouped = table.group_by("id").aggregate([("offset", "min"), ("offset", "max")])
        for row in grouped.to_pylist():
            known = self._queues.setdefault(str(row["id"]), [])
            known += [row["offset_min"], row["offset_max"]]
            known[:] = [min(known), max(known)]
        self._offsets = [min(self._offsets), max(self._offsets)]
        self._times = [min(self._times), max(self._times)]

    def describe_file(self, file: DataFile, size: int) -> DataFile:
        return DataFile(
            file.path,
            file.topic,
            file.dt,
            self._rows,
            size,
            self._offsets[0],
            self._offsets[1],
            self._times[0] // 1000,
            self._times[1] // 1000,
            self._queues,
        )


def describe_existing(folder: Folder, path: str) -> DataFile:
    """Return the entry of an existing file, from its rows."""
    topic, day = (unquote(part.partition("=")[2]) for part in path.split("/")[-3:-1])
    summary = _FileStatistics()
    columns = ["storeTimestamp", "physicalOffset", "queueId", "queueOffset"]
    with pq.ParquetFile(folder.open(path)) as file:
        for batch in file.iter_batches(columns=columns):
            summary.add(batch)
    return summary.describe_file(
        DataFile(path, topic, day, 0, 0, -1, -1, -1, -1, {}), folder.size(path)
    )


def find_existing(folder: Folder, names: Collection[str]) -> list[DataFile]:
    """Return the entries of existing files with these names, of any topic and day."""
    paths = [found.path for found in folder.data_files()]
    return [
        describe_existing(folder, p) for p in paths if p.rpartition("/")[2] in names
    ]


def first_place(path: str) -> int:
    """Return the first position in the name of a file."""
    return int(path[-len(f"{0:020d}-{0:020d}.parquet") :][:20])


def merged_name(paths: list[str]) -> str:
    """Return the path of the file that replaces the files at `paths`, which are in log
    order.
    """
    folder, _, first = paths[0].rpartition("/")
    start = first[: -len(f"-{0:020d}.parquet")]
    end = paths[-1][-len(f"{0:020d}.parquet") :]
    return f"{folder}/{start}-{end}"


def merge_files(folder: Folder, target: str, sources: list[str]) -> DataFile:
    """Merge files of one topic and day; returns the entry of the new file."""
    draft = folder.create_draft(target)
    try:
        schema = _merged_schema(folder, sources)
        with _parquet_writer(draft.target, schema) as writer:
            for source in sources:
                with pq.ParquetFile(folder.open(source)) as file:
                    for batch in file.iter_batches(BATCH_ROWS):
                        writer.write_batch(_cast_batch(schema, batch))
        _publish_draft(folder, draft, target)
    finally:
        draft.discard()
    return describe_existing(folder, target)


def _merged_schema(folder: Folder, sources: list[str]) -> pa.Schema:
    """Return the schema of all files; later files may have more or wider columns."""
    schemas = []
    for source in sources:
        with pq.ParquetFile(folder.open(source)) as file:
            schemas.append(file.schema_arrow.remove_metadata())
    return pa.unify_schemas(schemas, promote_options="permissive")


def _cast_batch(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _publish_draft(
    folder: Folder, draft: Draft, path: str, *, adopts: bool = False
) -> None:
    """Publish a draft; a file with the same rows may exist already."""
    if not (
        draft.publish() or adopts or _has_same_rows(draft.open(), folder.open(path))
    ):
        raise StoreError(
            f"{folder.name}/{path} exists and has other rows than the log: it belongs "
            "to another store, or was changed; remove it, or export to another folder"
        )
    draft.discard()


def _has_same_rows(draft: Any, final: Any) -> bool:  # noqa: ANN401 - paths or files
    """Compare the rows; other versions of pyarrow write other bytes."""
    try:
        with pq.ParquetFile(draft) as ours, pq.ParquetFile(final) as theirs:
            return ours.schema_arrow.equals(theirs.schema_arrow) and all(
                ours.read([name]).equals(theirs.read([name]))
                for name in ours.schema_arrow.names
            )
    except pa.ArrowException:
        return False


def _parquet_writer(
    target: Any,  # noqa: ANN401 - a path or a file
    schema: pa.Schema,
) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        target,
        schema,
        compression="snappy",
        use_dictionary=[n for n in schema.names if n not in _PLAIN],
    )


def _min_max(values: pa.Array) -> list[int]:
    bounds = pc.min_max(values).as_py()
    return [bounds["min"], bounds["max"]]


def _check_count(count: int, part: Part) -> None:
    if count >= MAX_OPEN_FILES:
        raise StoreError(
            f"the split from {part.start} to {part.end} has more than {MAX_OPEN_FILES} "
            "topics and days: export with a smaller --split-bytes (a store) or "
            "--batch-rows (live topics)"
        )
