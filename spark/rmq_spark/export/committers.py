"""Committers add the files of a batch to a table, exactly once.

The manifest has the position of every export.  The committer of a table format runs
under the lock of the manifest, before the manifest is written.  After a kill between
the two the batch runs again, so a committer skips a batch that the table already has.

The lock works on one host only.  Exporters on two hosts may run the same plan, and
several brokers may fill one table.  So a commit is optimistic: it names the version of
the table that does not have the batch, and fails if another commit came first.  Then
the committer reads the table again.  A table has the newest batch of each broker: Delta
as the application `rmq-follow:<broker>`, Iceberg in the property `rmq.<broker>.seq`.

A separate batch merges small files, and replaces them in one Iceberg snapshot.  A
Delta table is compacted by deltalake, in commits without a batch.

Messages whose bodies do not fit go to a quarantine table, which is committed first.
After a kill between the two commits the batch runs again, too.
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
from rmq.core.extras import install_command
from rmq_spark.backoff import pause_s
from rmq_spark.export.folder import MANIFESTS
from rmq_spark.export.manifest import DataFile, Manifest
from rmq_spark.export.task import QUARANTINE, ExportJob

FORMATS: Final = ("parquet", "delta", "iceberg")
_S3: Final = "s3://"
_CATALOG: Final = "rmq"
_FROM_ENVIRONMENT: Final = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
}
"""Settings that pyiceberg does not read from the environment itself."""
_TIMEOUTS: Final = {"s3.connect-timeout": "10", "s3.request-timeout": "120"}
"""Time limits in seconds; Arrow's defaults of 1 and 3 are too short for a slow store.
"""
_END: Final = "rmq.end"
_RETRIES: Final = "commit.retry.num-retries"
_MERGER: Final = "rmq.merger"
SMALL_BYTES: Final = 32 << 20
"""Size below which files are merged while the service runs."""
MERGED_BYTES: Final = 128 << 20
"""Size at which a merge accepts no more files."""
MERGE_FILES: Final = 16
"""Number of small files of a topic and day that are merged before the day ends."""
MAX_PARTITIONS: Final = 64
"""Limit of topics and days in one compaction, so that new messages do not wait long."""
MAX_ATTEMPTS: Final = 10
"""Number of attempts to commit one batch: each conflict means that another commit
succeeded.
"""


class Committer(Protocol):
    """Commits batches to a table of one format."""

    def commit(self, manifest: Manifest) -> None:
        """Add the files of a batch to the table, once."""


class ParquetCommitter:
    """The committer of tables that only the manifests define."""

    def commit(self, manifest: Manifest) -> None:
        """Do nothing: the manifest is the commit."""


class PairCommitter:
    """Commits to the quarantine, then to the table."""

    def __init__(self, quarantine: Committer, table: Committer) -> None:
        self.committers = quarantine, table

    def commit(self, manifest: Manifest) -> None:
        """Commit to both; each one skips a batch that it has already."""
        for committer in self.committers:
            committer.commit(manifest)


class TableTarget(NamedTuple):
    """A table, and the part of each batch that it gets."""

    job: ExportJob
    prefix: str
    """Prefix of the paths of the table's files."""
    schema: pa.Schema

    def files(self, manifest: Manifest) -> list[DataFile]:
        """Return the files of a batch that belong to this table."""
        return manifest.quarantined if self.prefix else manifest.added

    @property
    def table_url(self) -> str:
        """The location of the table."""
        return f"{self.job.folder.url}/{self.prefix}".rstrip("/")

    def changed_error(self, problem: str) -> StoreError:
        """Return the error for a table that another program has changed."""
        return StoreError(
            f"the {self.job.settings.table_format} table in {self.table_url} was "
            f"changed by another program, and accepts no more files: {problem}; export "
            "to another folder"
        )


def _commit_once(
    attempt: Callable[[], None], lost: tuple[type[Exception], ...]
) -> None:
    """Call `attempt` until it meets no conflict with another writer."""
    for left in reversed(range(MAX_ATTEMPTS)):
        try:
            return attempt()
        except lost as error:
            if not left:
                raise StoreError(
                    f"the commit failed {MAX_ATTEMPTS} times, because of other writers "
                    f"or of the catalog: {error}; the batch is not part of the table, "
                    "run the export again"
                ) from error
            # a pause, so that several brokers do not use up their attempts
            time.sleep(pause_s(MAX_ATTEMPTS - left))


class DeltaCommitter:
    """Adds files with deltalake; a batch is an application transaction."""

    def __init__(self, target: TableTarget) -> None:
        self._target = target
        self._loaded: Any = None
        self._app = delta_app(target.job.settings.broker_name)
        fields = [field for field in target.schema if field.name != "topic"]
        self._schema = pa.schema(
            [*fields, pa.field("topic", pa.string()), pa.field("dt", pa.string())]
        )

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one transaction, unless the table has the batch already."""
        from deltalake.exceptions import CommitFailedError

        _commit_once(partial(self._try_commit, manifest), (CommitFailedError,))

    def compact(self, today: str) -> int:
        """Merge small files of past days, or of partitions with many files; returns the
        number of merged files.

        A merge changes no rows, so that a conflict with another writer ends it.

        deltalake 1.6 accepts two merges of the same files, which duplicates each row.
        But it refuses a commit if the table properties were changed after its version.
        So each merger first writes its mark to a property. It merges only if the newest
        mark is its own mark. A merger with a later mark reads a table that has the
        earlier merges.
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
                # each commit also loads the commits of others
                if table.metadata().configuration.get(_MERGER) != mark[_MERGER]:
                    break
                done = table.optimize.compact(
                    partition_filters=[("topic", "=", topic), ("dt", "=", day)],
                    target_size=MERGED_BYTES,
                )
                merged += int(done["numFilesRemoved"])
        except CommitFailedError:
            pass  # another writer is at work; the next round tries again
        return merged

    def _try_commit(self, manifest: Manifest) -> None:
        from deltalake import CommitProperties, Transaction

        files = self._target.files(manifest)
        if not files:
            return
        table = self._table()
        done = table.transaction_version(self._app)
        if done is not None and done >= manifest.seq:
            return
        self._evolve_schema(table)
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
        """Return the current table; if it is loaded already, read only the new
        commits.
        """
        from deltalake import DeltaTable

        if self._loaded is None:
            self._loaded = DeltaTable.create(
                self._target.table_url,
                self._schema,
                partition_by=["topic", "dt"],
                mode="ignore",
            )
        else:
            self._loaded.update_incremental()
        return self._loaded

    def _evolve_schema(self, table: Any) -> None:  # noqa: ANN401 - of an extra
        """Add missing columns, in a commit before the batch."""
        from deltalake import Schema

        there = {field.name: field.type for field in table.schema().fields}
        missing = []
        for field in Schema.from_arrow(self._schema).fields:
            kind = there.get(field.name)
            if kind is None:
                missing.append(field)
            elif kind != field.type:
                raise self._target.changed_error(
                    f"column {field.name} is {kind}, not {field.type}"
                )
        partitions = table.metadata().partition_columns
        if partitions != ["topic", "dt"]:
            raise self._target.changed_error(
                f"its partitions are {', '.join(partitions)}"
            )
        if missing:
            table.alter.add_columns(missing)


def _small_partitions(table: Any, today: str) -> list[tuple[str, str]]:  # noqa: ANN401
    """Return topics and days with many small files; past days with 2 or more."""
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
    """Adds files with pyiceberg.

    On a disk the catalog is a SQLite file in the folder of the export.  For an object
    store pyiceberg's own configuration must name the catalog `rmq`.
    """

    def __init__(self, target: TableTarget) -> None:
        root = target.job.folder.url
        is_url = root.startswith(_S3)
        self._target = target
        self._root = root if is_url else f"file://{root}"
        self._location = target.table_url if is_url else f"file://{target.table_url}"
        self._database = None if is_url else f"{root}/{MANIFESTS}/iceberg.db"
        settings = target.job.settings
        self._seq = iceberg_property(settings.broker_name)
        suffix = "_quarantine" if target.prefix else ""
        self._name = f"rmq.{settings.table}{suffix}"

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one snapshot, unless the table has them already."""
        from pyiceberg.exceptions import CommitFailedException
        from sqlalchemy.exc import DBAPIError

        # two exporters that create one catalog conflict in its database
        lost = (CommitFailedException, DBAPIError)
        _commit_once(partial(self._try_commit, manifest), lost)

    def _try_commit(self, manifest: Manifest) -> None:
        from pyiceberg.io.pyarrow import parquet_files_to_data_files

        files = self._target.files(manifest)
        if not files:
            return
        table = self._table()
        done = int(table.properties.get(self._seq, -1))
        if done >= manifest.seq:
            return
        self._evolve_schema(table)
        replaced = self._find_replaced(table, manifest)
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
                # a property stays when another program expires old snapshots
                transaction.set_properties({self._seq: str(manifest.seq)})
        except ValueError as error:
            raise self._target.changed_error(str(error)) from error

    def _find_replaced(self, table: Any, manifest: Manifest) -> list[Any] | None:  # noqa: ANN401
        """Return the merged files; None if another program has changed their rows.

        Then the table does not change, because a merged file would restore removed
        rows.
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

    def snapshot_files(self) -> set[str]:
        """Return the files that any snapshot of the table has."""
        paths = self._table().inspect.all_files()["file_path"].to_pylist()
        return {path.removeprefix(f"{self._root}/") for path in paths}

    def load(self) -> Any | None:  # noqa: ANN401 - of an extra
        """Return the current table; None before the first batch."""
        from pyiceberg.exceptions import NoSuchTableError

        if self._database is not None and not os.path.exists(self._database):
            return None  # opening the catalog would create it
        try:
            return self._load_catalog().load_table(self._name)
        except NoSuchTableError:
            return None

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        catalog = self._load_catalog()
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
                "choose another name with --table"
            )
        if table.properties.get(_RETRIES) != "0":
            # pyiceberg would repeat a conflicting commit without reading the table
            with table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})
        return table

    def _evolve_schema(self, table: Any) -> None:  # noqa: ANN401 - of an extra
        """Add missing columns and widen types, in a commit before the batch."""
        from pyiceberg.exceptions import ValidationError

        try:
            with table.update_schema() as update:
                update.union_by_name(self._target.schema)
        except ValidationError as error:
            raise self._target.changed_error(str(error).partition("\n")[0]) from error

    def _load_catalog(self) -> Any:  # noqa: ANN401 - of an extra
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog
        from pyiceberg.utils.config import Config

        if self._database is not None:
            return SqlCatalog(
                _CATALOG, uri=f"sqlite:///{self._database}", warehouse=self._root
            )
        configured = Config().get_catalog_config(_CATALOG) or {}
        given = {n: v for n, v in _TIMEOUTS.items() if n not in configured} | {
            name: os.environ[variable]
            for name, variable in _FROM_ENVIRONMENT.items()
            if variable in os.environ
        }
        try:
            return load_catalog(_CATALOG, warehouse=self._root, **given)
        except ValueError as error:
            raise ConfigError(
                f"an Iceberg table in {self._root} needs a catalog: configure the "
                f"catalog {_CATALOG} of pyiceberg, for example by "
                "PYICEBERG_CATALOG__RMQ__URI=sqlite:////var/lib/rmq/iceberg.db"
            ) from error


def delta_app(broker_name: str) -> str:
    """Return the Delta application of a broker; its version is the batch number."""
    return f"rmq-follow:{broker_name}"


def iceberg_property(broker_name: str) -> str:
    """Return the Iceberg property with the newest batch of a broker."""
    return f"rmq.{broker_name}.seq"


def check_library(table_format: str) -> None:
    """Raise a ConfigError that names the missing extra of a table format."""
    package = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(table_format)
    if package is None:
        raise ConfigError(f"there is no format {table_format}: {', '.join(FORMATS)}")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"format {table_format} needs {package}: {install_command(table_format)}"
        ) from error


def committer_of(job: ExportJob) -> Committer:
    """Create the committer of a table; ConfigError if its extra is missing."""
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
    """Return the committers of the Delta tables, which deltalake compacts."""
    both = committer.committers if isinstance(committer, PairCommitter) else [committer]
    return [table for table in both if isinstance(table, DeltaCommitter)]


def table_snapshot_files(job: ExportJob) -> set[str]:
    """Return the files that readers of older snapshots may need."""
    if job.settings.table_format != "iceberg":
        return set()
    return IcebergCommitter(TableTarget(job, "", job.schema)).snapshot_files()
