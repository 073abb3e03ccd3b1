"""The sink in Spark: `write.format("rmq")` and `writeStream.format("rmq")`.

A task ends when every row is acknowledged. If a row is not acknowledged, the task
fails, and Spark repeats it. So
each row is stored at least once.  A repeated row has the same key as the first one.
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
"""Local properties that Spark sets for the tasks of a stream."""


@dataclass
class Sent(WriterCommitMessage):
    """The number of rows that a task has sent."""

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
    """Writes the micro-batches of a stream; a replayed batch has the same keys."""

    def __init__(self, sending: SinkTask) -> None:
        self._sending = sending

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one task of a batch."""
        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        query, batch = (context.getLocalProperty(name) for name in (QUERY, BATCH))
        job = f"{query}|{batch}"
        return Sent(self._sending.write(iterator, job, context.partitionId()))
