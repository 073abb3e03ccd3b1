"""The sink: `write.format("rmq")` and `writeStream.format("rmq")`.

A task ends when every row is acknowledged; it fails if one is not, and Spark repeats
it.  So each row is stored at least once, and a repeated row has the key of the first.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from rmq_spark.sink.task import SinkTask

QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"
"""Local properties of the tasks of a stream."""


@dataclass
class Sent(WriterCommitMessage):
    """What a task has sent."""

    rows: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once."""

    def __init__(self, sending: SinkTask) -> None:
        self._sending = sending
        self._job = f"{uuid.uuid4()}|0"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        rows = self._sending.write(iterator, self._job, context.partitionId())
        return Sent(rows)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a stream; a batch that is replayed has the same keys."""

    def __init__(self, sending: SinkTask) -> None:
        self._sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        query, batch = (context.getLocalProperty(name) for name in (QUERY, BATCH))
        job = f"{query}|{batch}"
        return Sent(self._sending.write(iterator, job, context.partitionId()))
