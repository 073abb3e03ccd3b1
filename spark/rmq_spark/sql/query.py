"""query: runs one statement for programs and notebooks; returns an Arrow table."""

import os

import pyarrow as pa

from rmq_spark.sql.archive import Archive
from rmq_spark.sql.database import Database, SqlError
from rmq_spark.sql.dataset import ScanSettings
from rmq_spark.sql.log_snapshot import named_logs
from rmq_spark.sql.origin import Stores


def query(
    statement: str,
    *stores: str,
    memory: str = "1GB",
    timeout_s: float | None = None,
    archive: str | None = None,
) -> pa.Table:
    """Query stores, each DIR or NAME=DIR; RmqError if that fails.

    `memory` limits sorting, joining and grouping.  `archive` is the folder of an
    export, or s3://BUCKET/PREFIX.
    """
    limits = ScanSettings(threads=len(os.sched_getaffinity(0)))
    origin = Stores(named_logs(stores), limits)
    database = Database(
        origin,
        memory,
        threads=limits.threads,
        timeout_s=timeout_s,
        archive=None if archive is None else Archive(archive),
    )
    try:
        result = database.run(statement)
        if result is None:
            raise SqlError("the statement has no rows")
        return pa.Table.from_batches(result.batches, result.schema)
    finally:
        database.close()
