"""Committers: how the files of a batch become part of a table.

rmq's own manifest is the position of every export.  A committer for a table format runs
before the manifest is written and under its lock, and does nothing for a batch that it
has already committed: a kill between the two leads to the same batch again.

The lock holds on one host.  Exporters on two hosts can have the same plan, so a commit
names the state of the table in which it has not found its batch, and fails if another
one came between.  Then the committer looks again before it repeats anything.
"""

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa

from rmq.errors import ConfigError, StoreError
from rmq_spark.manifest import FOLDER, DataFile, Manifest

FORMATS: Final = ("parquet", "delta", "iceberg")
_APP: Final = "rmq-export"
_SEQ: Final = "rmq.seq"
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
                    f"other writers of the table were faster {MAX_ATTEMPTS} times: "
                    f"{error}; the batch is not part of the table, run the export again"
                ) from error


class DeltaCommitter:
    """Registers the files with deltalake; the batch is an application transaction."""

    def __init__(self, out: str | Path, schema: pa.Schema) -> None:
        self._out = str(out)
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
        done = table.transaction_version(_APP)
        if not manifest.added or (done is not None and done >= manifest.seq):
            return
        table.create_write_transaction(
            [_add_action(file) for file in manifest.added],
            mode="append",
            schema=table.schema(),
            partition_by=["topic", "dt"],
            commit_properties=CommitProperties(
                custom_metadata={_END: str(manifest.end)},
                app_transactions=[Transaction(_APP, manifest.seq)],
            ),
        )

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        from deltalake import DeltaTable

        return DeltaTable.create(
            self._out, self._schema, partition_by=["topic", "dt"], mode="ignore"
        )


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
    """Adds the files with pyiceberg, in a catalog beside the data."""

    def __init__(self, out: str | Path, schema: pa.Schema) -> None:
        self._out = Path(out).resolve()
        self._schema = schema

    def commit(self, manifest: Manifest) -> None:
        """Add the files in one snapshot, unless the table has this one already."""
        from pyiceberg.exceptions import CommitFailedException
        from sqlalchemy.exc import DBAPIError

        # two that make the same catalog at once meet in its database
        lost = (CommitFailedException, DBAPIError)
        _commit_once(partial(self._attempt, manifest), lost)

    def _attempt(self, manifest: Manifest) -> None:
        table = self._table()
        done = [
            int(snapshot.summary.additional_properties.get(_SEQ, -1))
            for snapshot in table.snapshots()
            if snapshot.summary is not None
        ]
        if not manifest.added or max(done, default=-1) >= manifest.seq:
            return
        table.add_files(
            [f"file://{self._out / file.path}" for file in manifest.added],
            snapshot_properties={_SEQ: str(manifest.seq), _END: str(manifest.end)},
        )

    def _table(self) -> Any:  # noqa: ANN401 - of an extra
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog(
            "rmq",
            uri=f"sqlite:///{self._out / FOLDER / 'iceberg.db'}",
            warehouse=f"file://{self._out}",
        )
        catalog.create_namespace_if_not_exists("rmq")
        table = catalog.create_table_if_not_exists(
            "rmq.messages",
            self._schema,
            location=f"file://{self._out}",
            properties={_RETRIES: "0"},
        )
        if table.properties.get(_RETRIES) != "0":
            # pyiceberg repeats a lost commit without a look at what the table has now
            with table.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})
        return table


def committer_of(table_format: str, out: str | Path, schema: pa.Schema) -> Committer:
    """The committer of a format; a sentence says which extra is missing."""
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
    return kind(out, schema)


def check_mergeable(table_format: str, files: Sequence[DataFile]) -> None:
    """Refuse to merge files of a table that another library maintains."""
    if table_format != "parquet" and files:
        raise StoreError(
            f"a {table_format} table is optimized by its own library, not by rmq-spark"
        )
