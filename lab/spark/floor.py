"""A Python source that decodes nothing and a Python sink that sends nothing.

What these cost in a run is Spark's: Arrow's stream, its copies, its processes.  The
rest of a scan or of a sink is rmq's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "rmq_floor"
TASKS = 8


@dataclass
class Share(InputPartition):
    """How often a task gives the batch."""

    times: int


class Reader(DataSourceReader):
    """Gives one batch again and again."""

    def __init__(self, path: str, rows: int) -> None:
        self._path = path
        self._rows = rows

    def partitions(self) -> list[Share]:
        """Shares that are equal, or nearly."""
        times, more = divmod(round(self._rows / _batch_of(self._path).num_rows), TASKS)
        return [Share(times + (number < more)) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batch, from a file that is read once."""
        assert isinstance(partition, Share)
        batch = _batch_of(self._path)
        for _ in range(partition.times):
            yield batch


class Writer(DataSourceArrowWriter):
    """Takes the batches, and forgets them."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Look at nothing."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


class FloorSource(DataSource):
    """Options: `batch`, an Arrow file; `columns`, its schema; `rows` to give."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return NAME

    def schema(self) -> str:
        """The columns, as text."""
        return str(self.options["columns"])

    def reader(self, schema: StructType) -> DataSourceReader:
        """A batch reader."""
        del schema
        return Reader(self.options["batch"], int(self.options["rows"]))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer of Arrow batches."""
        del schema, overwrite
        return Writer()


def write_batch(batch: pa.RecordBatch, path: str) -> None:
    """Make the file of the option `batch`."""
    import pyarrow as pa

    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def _batch_of(path: str) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).get_batch(0)
