"""Committers: how the files of a batch become part of a table.

rmq's own manifest is the position of every export.  A committer for a table format runs
before the manifest is written and under its lock, and does nothing for a batch that it
has already committed: a kill between the two leads to the same batch again.

The lock holds on one host.  Exporters on two hosts can have the same plan, and several
brokers may fill one table, so a commit names the state of the table in which it has not
found its batch, and fails if another one came between.  Then the committer looks again
before it repeats anything.  A table knows the newest batch of each broker: Delta as the
application `rmq-follow:<broker>`, Iceberg in its property `rmq.<broker>.seq`.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from rmq.errors import ConfigError, StoreError
from rmq_spark.folder import MANIFESTS, Folder
from rmq_spark.manifest import DataFile, Manifest, Settings
from rmq_spark.pauses import pause_s

FORMATS: Final = ("parquet", "delta", "iceberg")
_S3: Final = "s3://"
_CATALOG: Final = "rmq"
_OF_ENVIRONMENT: Final = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.region": "AWS_REGION",
}
"""What pyiceberg does not take from there itself; it would look for the region."""
_END: Final = "rmq.end"
_RETRIES: Final = "commit.retry.num-retries"
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

    def __init__(self, folder: Folder, broker_name: str, schema: pa.Schema) -> None:
        self._url = folder.url
        self._loaded: Any = None
        self._app = f"rmq-follow:{broker_name}"
        fields = [field for field in schema if field.name != "topic"]
        self._schema = pa.schema(
            [*fields, pa.field("topic", pa.string()), pa.field("dt", pa.string())]
        )

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one transaction, unless the table has its number already."""
        from deltalake.exceptions import CommitFailedError

        _commit_once(partial(self._attempt, manifest), (CommitFailedError,))

    def _attempt(self, manifest: Manifest) -> None:
        from deltalake import CommitProperties, Transaction

        table = self._table()
        done = table.transaction_version(self._app)
        if not manifest.added or (done is not None and done >= manifest.seq):
            return
        table.create_write_transaction(
            [_add_action(file) for file in manifest.added],
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
                self._url, self._schema, partition_by=["topic", "dt"], mode="ignore"
            )
        else:
            self._loaded.update_incremental()
        return self._loaded


def _add_action(file: DataFile) -> Any:  # noqa: ANN401 - of an extra
    from deltalake.transaction import AddAction

    stats = {
        "numRecords": file.rows,
        "minValues": {"physicalOffset": file.min_offset},
        "maxValues": {"physicalOffset": file.max_offset},
        "nullCount": {"physicalOffset": 0},
    }
    return AddAction(
        file.path,
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

    def __init__(self, folder: Folder, broker_name: str, schema: pa.Schema) -> None:
        is_url = folder.url.startswith(_S3)
        self._location = folder.url if is_url else f"file://{folder.url}"
        self._database = None if is_url else f"{folder.url}/{MANIFESTS}/iceberg.db"
        self._seq = f"rmq.{broker_name}.seq"
        self._schema = schema

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one snapshot, unless the table has them already."""
        from pyiceberg.exceptions import CommitFailedException
        from sqlalchemy.exc import DBAPIError

        # two that make the same catalog at once meet in its database
        lost = (CommitFailedException, DBAPIError)
        _commit_once(partial(self._attempt, manifest), lost)

    def _attempt(self, manifest: Manifest) -> None:
        table = self._table()
        done = int(table.properties.get(self._seq, -1))
        if not manifest.added or done >= manifest.seq:
            return
        # an older snapshot may be expired by others, a property is not
        with table.transaction() as transaction:
            transaction.add_files(
                [f"{self._location}/{file.path}" for file in manifest.added],
                snapshot_properties={
                    self._seq: str(manifest.seq),
                    _END: str(manifest.end),
                },
                check_duplicate_files=False,
            )
            transaction.set_properties({self._seq: str(manifest.seq)})

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        catalog = self._catalog()
        catalog.create_namespace_if_not_exists("rmq")
        table = catalog.create_table_if_not_exists(
            "rmq.messages",
            self._schema,
            location=self._location,
            properties={_RETRIES: "0"},
        )
        if table.properties.get(_RETRIES) != "0":
            # pyiceberg repeats a lost commit without a look at what the table has now
            with table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})
        return table

    def _catalog(self) -> Any:  # noqa: ANN401 - of an extra
        from pyiceberg.catalog import load_catalog
        from pyiceberg.catalog.sql import SqlCatalog

        if self._database is not None:
            return SqlCatalog(
                _CATALOG,
                uri=f"sqlite:///{self._database}",
                warehouse=self._location,
            )
        given = {
            name: os.environ[variable]
            for name, variable in _OF_ENVIRONMENT.items()
            if variable in os.environ
        }
        try:
            return load_catalog(_CATALOG, warehouse=self._location, **given)
        except ValueError as error:
            raise ConfigError(
                f"an Iceberg table in {self._location} needs a catalog: tell pyiceberg "
                f"where the one called {_CATALOG} is, for example by "
                "PYICEBERG_CATALOG__RMQ__URI=sqlite:////var/lib/rmq/iceberg.db"
            ) from error


def committer_of(settings: Settings, folder: Folder, schema: pa.Schema) -> Committer:
    """The committer of a format; a sentence says which extra is missing."""
    table_format = settings.table_format
    if table_format == "parquet":
        return ParquetCommitter()
    package = {"delta": "deltalake", "iceberg": "pyiceberg"}.get(table_format)
    if package is None:
        raise ConfigError(f"there is no format {table_format}: {', '.join(FORMATS)}")
    try:
        __import__(package)
    except ImportError as error:
        raise ConfigError(
            f"format {table_format} needs {package}: pip install 'rmq[{table_format}]'"
        ) from error
    kind = DeltaCommitter if table_format == "delta" else IcebergCommitter
    return kind(folder, settings.broker_name, schema)


def check_mergeable(table_format: str, files: Sequence[DataFile]) -> None:
    """Refuse to merge files of a table that another library maintains."""
    if table_format != "parquet" and files:
        raise StoreError(
            f"a {table_format} table is optimized by its own library, not by rmq-spark"
        )
