"""Committers: how the files of a batch become part of a table.

rmq's own manifest is the position of every export.  A committer for a table format runs
before the manifest is written and under its lock, and does nothing for a batch that it
has already committed: a kill between the two leads to the same batch again.

The lock holds on one host.  Exporters on two hosts can have the same plan, and several
brokers may fill one table, so a commit names the state of the table in which it has not
found its batch, and fails if another one came between.  Then the committer looks again
before it repeats anything.  A table knows the newest batch of each broker: Delta as the
application `rmq-follow:<broker>`, Iceberg in its property `rmq.<broker>.seq`.

Small files are merged by a batch of their own, which replaces them in one snapshot of
an Iceberg table.  deltalake compacts a Delta table, in commits that no batch knows.

Messages whose bodies do not fit are in a table of their own, which gets its part of a
batch first.  A kill between the two commits leads to the same batch again, too.
"""

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from rmq.core.errors import ConfigError, StoreError
from rmq_spark.backoff import pause_s
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.manifest import DataFile, Manifest
from rmq_spark.export.task import QUARANTINE, ExportJob

FORMATS: Final = ("parquet", "delta", "iceberg")
_S3: Final = "s3://"
_CATALOG: Final = "rmq"
_OF_ENVIRONMENT: Final = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
}
"""What pyiceberg does not take from there itself; it would look for the region."""
_PATIENCE: Final = {"s3.connect-timeout": "10", "s3.request-timeout": "120"}
"""Seconds; Arrow's own are 1 and 3, too few for a slow store."""
_END: Final = "rmq.end"
_RETRIES: Final = "commit.retry.num-retries"
_MERGER: Final = "rmq.merger"
SMALL_BYTES: Final = 32 << 20
"""Files that are merged while the service runs; larger ones suit readers."""
MERGED_BYTES: Final = 128 << 20
"""A merge takes no more files when it has so much."""
MERGE_FILES: Final = 16
"""Small files of a topic and day that are merged before the day is over."""
MAX_PARTITIONS: Final = 64
"""Topics and days of one compaction: it must not keep new messages waiting for long."""
MAX_ATTEMPTS: Final = 10
"""Commits of one batch: each that is lost means that somebody else has committed."""


class Committer(Protocol):
    """One table format."""

    def commit(self, manifest: Manifest) -> None:
        """Make the files of this batch part of the table, once."""


class ParquetCommitter:
    """The manifest alone defines the table."""

    def commit(self, manifest: Manifest) -> None:
        """Nothing to do."""


class PairCommitter:
    """The quarantine, then the table."""

    def __init__(self, quarantine: Committer, table: Committer) -> None:
        self.committers = quarantine, table

    def commit(self, manifest: Manifest) -> None:
        """Each by itself: a batch that one of them has already is left alone."""
        for committer in self.committers:
            committer.commit(manifest)


class TableTarget(NamedTuple):
    """A table that gets a part of each batch."""

    job: ExportJob
    prefix: str
    """Before the paths of its files."""
    schema: pa.Schema

    def files(self, manifest: Manifest) -> list[DataFile]:
        """Its files in a batch."""
        return manifest.quarantined if self.prefix else manifest.added

    @property
    def url(self) -> str:
        """Where the table is."""
        return f"{self.job.folder.url}/{self.prefix}".rstrip("/")

    def changed(self, problem: str) -> StoreError:
        """The error of a table that somebody else has changed."""
        return StoreError(
            f"the {self.job.settings.table_format} table in {self.url} was changed by "
            f"somebody else, and takes no more files: {problem}; export to another "
            "folder"
        )


def _commit_once(
    attempt: Callable[[], None], lost: tuple[type[Exception], ...]
) -> None:
    """Attempt a commit until it is not lost to another writer's."""
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return attempt()
        except lost as error:
            if not left:
                raise StoreError(
                    f"other writers of the table were faster {MAX_ATTEMPTS} times, or "
                    f"its catalog does not answer: {error}; the batch is not part of "
                    "the table, run the export again"
                ) from error
            # several brokers that meet again and again would use up their attempts
            time.sleep(pause_s(MAX_ATTEMPTS - left))


class DeltaCommitter:
    """Registers the files with deltalake; the batch is an application transaction."""

    def __init__(self, target: TableTarget) -> None:
        self._target = target
        self._loaded: Any = None
        self._app = delta_app(target.job.settings.broker_name)
        fields = [field for field in target.schema if field.name != "topic"]
        self._schema = pa.schema(
            [*fields, pa.field("topic", pa.string()), pa.field("dt", pa.string())]
        )

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one transaction, unless the table has its number already."""
        from deltalake.exceptions import CommitFailedError

        _commit_once(partial(self._attempt, manifest), (CommitFailedError,))

    def compact(self, today: str) -> int:
        """Merge small files of a partition; how many there were.

        A commit that changes no rows: one that another writer's excludes is left.

        Of two that merge the same files deltalake 1.6 accepts both, and each row is
        there twice.  But it refuses a commit if the properties of the table were
        changed after the commit's version.  So each one that merges writes a mark of
        its own to a property, and merges while the newest mark that it sees is its own:
        who commits a later mark has seen the merge.
        """
        from deltalake.exceptions import CommitFailedError

        table, merged = self._table(), 0
        partitions = _small_partitions(table, today)[:MAX_PARTITIONS]
        if not partitions:
            return 0
        mark = {_MERGER: f"{self._app} {uuid.uuid4()}"}
        try:
            table.alter.set_table_properties(mark, raise_if_not_exists=False)
            for topic, day in partitions:
                # each commit loads what others have committed, too
                if table.metadata().configuration.get(_MERGER) != mark[_MERGER]:
                    break
                done = table.optimize.compact(
                    partition_filters=[("topic", "=", topic), ("dt", "=", day)],
                    target_size=MERGED_BYTES,
                )
                merged += int(done["numFilesRemoved"])
        except CommitFailedError:
            pass  # somebody else is at work, and the next look is soon
        return merged

    def _attempt(self, manifest: Manifest) -> None:
        from deltalake import CommitProperties, Transaction

        files = self._target.files(manifest)
        if not files:
            return
        table = self._table()
        done = table.transaction_version(self._app)
        if done is not None and done >= manifest.seq:
            return
        self._evolve(table)
        table.create_write_transaction(
            [_add_action(self._target.prefix, file) for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=["topic", "dt"],
            commit_properties=CommitProperties(
                custom_metadata={_END: str(manifest.end)},
                app_transactions=[Transaction(self._app, manifest.seq)],
            ),
        )

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        """The table as it is now; one that was loaded needs only what came since."""
        from deltalake import DeltaTable

        if self._loaded is None:
            self._loaded = DeltaTable.create(
                self._target.url,
                self._schema,
                partition_by=["topic", "dt"],
                mode="ignore",
            )
        else:
            self._loaded.update_incremental()
        return self._loaded

    def _evolve(self, table: Any) -> None:  # noqa: ANN401 - of an extra
        """Add the columns that are missing, as a commit before the batch."""
        from deltalake import Schema

        there = {field.name: field.type for field in table.schema().fields}
        missing = []
        for field in Schema.from_arrow(self._schema).fields:
            kind = there.get(field.name)
            if kind is None:
                missing.append(field)
            elif kind != field.type:
                raise self._target.changed(
                    f"column {field.name} is {kind}, not {field.type}"
                )
        partitions = table.metadata().partition_columns
        if partitions != ["topic", "dt"]:
            raise self._target.changed(f"its partitions are {', '.join(partitions)}")
        if missing:
            table.alter.add_columns(missing)


def _small_partitions(table: Any, today: str) -> list[tuple[str, str]]:  # noqa: ANN401
    """Topics and days with many small files, or with several when the day is over."""
    actions = pa.table(table.get_add_actions(flatten=True))
    sizes = actions["size_bytes"].to_pylist()
    places = zip(
        actions["partition.topic"].to_pylist(),
        actions["partition.dt"].to_pylist(),
        strict=True,
    )
    small = Counter(
        place for place, size in zip(places, sizes, strict=True) if size < SMALL_BYTES
    )
    return [
        (topic, day)
        for (topic, day), count in small.items()
        if count >= (2 if day < today else MERGE_FILES)
    ]


def _add_action(prefix: str, file: DataFile) -> Any:  # noqa: ANN401 - of an extra
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": {"physicalOffset": file.min_offset},
        "maxValues": {"physicalOffset": file.max_offset},
        "nullCount": {"physicalOffset": 0},
    }
    return AddAction(
        file.path.removeprefix(prefix),
        file.bytes,
        {"topic": file.topic, "dt": file.dt},
        int(time.time() * 1000),
        data_change=True,
        stats=json.dumps(stats),
    )


class IcebergCommitter:
    """Adds the files with pyiceberg.

    On a disk the catalog is beside the data.  A catalog in an object store is not
    possible: there pyiceberg's own configuration says where the catalog `rmq` is.
    """

    def __init__(self, target: TableTarget) -> None:
        root = target.job.folder.url
        is_url = root.startswith(_S3)
        self._target = target
        self._root = root if is_url else f"file://{root}"
        self._location = target.url if is_url else f"file://{target.url}"
        self._database = None if is_url else f"{root}/{MANIFESTS}/iceberg.db"
        settings = target.job.settings
        self._seq = iceberg_property(settings.broker_name)
        suffix = "_quarantine" if target.prefix else ""
        self._name = f"rmq.{settings.table}{suffix}"

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one snapshot, unless the table has them already."""
        from pyiceberg.exceptions import CommitFailedException
        from sqlalchemy.exc import DBAPIError

        # two that make the same catalog at once meet in its database
        lost = (CommitFailedException, DBAPIError)
        _commit_once(partial(self._attempt, manifest), lost)

    def _attempt(self, manifest: Manifest) -> None:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        files = self._target.files(manifest)
        if not files:
            return
        table = self._table()
        done = int(table.properties.get(self._seq, -1))
        if done >= manifest.seq:
            return
        self._evolve(table)
        replaced = self._replaced(table, manifest)
        if replaced is None:
            return
        names = [f"{self._root}/{file.path}" for file in files]
        marks = {self._seq: str(manifest.seq), _END: str(manifest.end)}
        try:
            with table.transaction() as transaction:
                if replaced:
                    with transaction.update_snapshot(marks).overwrite() as snapshot:
                        for old in replaced:
                            snapshot.delete_data_file(old)
                        for new in parquet_files_to_data_files(
                            table.io, transaction.table_metadata, iter(names)
                        ):
                            snapshot.append_data_file(new)
                else:
                    transaction.add_files(
                        names, snapshot_properties=marks, check_duplicate_files=False
                    )
                # an older snapshot may be expired by others, a property is not
                transaction.set_properties({self._seq: str(manifest.seq)})
        except ValueError as error:
            raise self._target.changed(str(error)) from error

    def _replaced(self, table: Any, manifest: Manifest) -> list[Any] | None:  # noqa: ANN401
        """The files that were merged; None: somebody else has changed their rows.

        Then the table stays as it is: a merged file would bring removed rows back.
        """
        if not manifest.removed:
            return []
        wanted = {f"{self._root}/{path}" for path in manifest.removed}
        tasks = [
            task for task in table.scan().plan_files() if task.file.file_path in wanted
        ]
        if len(tasks) < len(wanted) or any(task.delete_files for task in tasks):
            return None
        return [task.file for task in tasks]

    def named_files(self) -> set[str]:
        """The files that any snapshot of the table has."""
        paths = self._table().inspect.all_files()["file_path"].to_pylist()
        return {path.removeprefix(f"{self._root}/") for path in paths}

    def load(self) -> Any | None:  # noqa: ANN401 - of an extra
        """The table as it is now; None: there is none yet."""
        from pyiceberg.exceptions import NoSuchTableError

        if self._database is not None and not os.path.exists(self._database):
            return None  # a look would make an empty one
        try:
            return self._catalog().load_table(self._name)
        except NoSuchTableError:
            return None

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("rmq")
        table = catalog.create_table_if_not_exists(
            self._name,
            self._target.schema,
            location=self._location,
            properties={_RETRIES: "0"},
        )
        if table.location() != self._location:
            raise ConfigError(
                f"the catalog has a table {self._name} already, in {table.location()}: "
                "give this one another name, --table"
            )
        if table.properties.get(_RETRIES) != "0":
            # pyiceberg repeats a lost commit without a look at what the table has now
            with table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})
        return table

    def _evolve(self, table: Any) -> None:  # noqa: ANN401 - of an extra
        """Add columns and widen them, as a commit before the batch."""
        from pyiceberg.exceptions import ValidationError

        try:
            with table.update_schema() as update:
                update.union_by_name(self._target.schema)
        except ValidationError as error:
            raise self._target.changed(str(error).partition("\n")[0]) from error

    def _catalog(self) -> Any:  # noqa: ANN401 - of an extra
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.utils.config import Config

        if self._database is not None:
            return SqlCatalog(
                _CATALOG,
                uri=f"sqlite:///{self._database}",
                warehouse=self._root,
            )
        configured = Config().get_catalog_config(_CATALOG) or {}
        given = {n: v for n, v in _PATIENCE.items() if n not in configured} | {
            name: os.environ[variable]
            for name, variable in _OF_ENVIRONMENT.items()
            if variable in os.environ
        }
        try:
            return load_catalog(_CATALOG, warehouse=self._root, **given)
        except ValueError as error:
            raise ConfigError(
                f"an Iceberg table in {self._root} needs a catalog: tell pyiceberg "
                f"where the one called {_CATALOG} is, for example by "
                "PYICEBERG_CATALOG__RMQ__URI=sqlite:////var/lib/rmq/iceberg.db"
            ) from error


def delta_app(broker_name: str) -> str:
    """The application of a broker in a Delta table; its version is a batch."""
    return f"rmq-follow:{broker_name}"


def iceberg_property(broker_name: str) -> str:
    """The property of an Iceberg table with the newest batch of a broker."""
    return f"rmq.{broker_name}.seq"


def check_library(table_format: str) -> None:
    """Say in a sentence which extra a format of tables needs."""
    package = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(table_format)
    if package is None:
        raise ConfigError(f"there is no format {table_format}: {', '.join(FORMATS)}")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"format {table_format} needs {package}: pip install 'rmq[{table_format}]'"
        ) from error


def committer_of(job: ExportJob) -> Committer:
    """The committer of a format; a sentence says which extra is missing."""
    table_format, schema = job.settings.table_format, job.schema
    if table_format == "parquet":
        return ParquetCommitter()
    check_library(table_format)
    kind = DeltaCommitter if table_format == "delta" else IcebergCommitter
    table = kind(TableTarget(job, "", schema))
    if job.settings.bodies is None:
        return table
    quarantine = kind(TableTarget(job, QUARANTINE, job.quarantine_schema))
    return PairCommitter(quarantine, table)


def delta_tables(committer: Committer) -> list[DeltaCommitter]:
    """The tables that deltalake compacts."""
    both = committer.committers if isinstance(committer, PairCommitter) else [committer]
    return [table for table in both if isinstance(table, DeltaCommitter)]


def named_by_snapshots(job: ExportJob) -> set[str]:
    """The files that a table may still show to readers of the past."""
    if job.settings.table_format != "iceberg":
        return set()
    return IcebergCommitter(TableTarget(job, "", job.schema)).named_files()
