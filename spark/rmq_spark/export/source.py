"""ExportSource: the log of a store, or live topics of a broker.

An export has positions: physical offsets of a log, or a count of exported messages.
The names of its plans, files and manifests contain these positions.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa

from rmq_spark.export.manifest import ExportPlan, Manifest, Plan, Settings
from rmq_spark.segments.reader import ReadSettings

BATCH_BYTES: Final = 1 << 30
SPLIT_BYTES: Final = 128 << 20
BATCH_ROWS: Final = 5_000_000


@dataclass(frozen=True)
class ExportLimits:
    """Limits of a batch and of a task, and the actions after loss and damage."""

    batch_bytes: int = BATCH_BYTES
    split_bytes: int = SPLIT_BYTES
    confirm_offset: int | None = None
    broker: str | None = None
    allow_loss: bool = False
    skip_corrupt: bool = False
    single_writer: bool = False
    """The store has no conditional writes, and there is only one exporter."""
    batch_rows: int = BATCH_ROWS
    """Limit of a batch of live topics."""


DEFAULT_LIMITS: Final = ExportLimits()


class Part(Protocol):
    """The messages of one task, at positions [start, end); pickled for the workers."""

    @property
    def start(self) -> int:
        """The first position."""

    @property
    def end(self) -> int:
        """The position after the last message."""

    def read_batches(
        self, reading: ReadSettings, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows; LostData if messages are missing."""

    def count_left_out(self, reading: ReadSettings) -> dict[str, int]:
        """Count the messages of each system topic that the reader did not read."""

    def readable_part(self) -> "Part | None":
        """Return a split without the missing messages; None if all are missing."""


class ExportSource(Protocol):
    """Plans the batches of an exporter, in its process."""

    @property
    def name(self) -> str:
        """A name for messages to people."""

    @property
    def position_unit(self) -> str:
        """The unit of positions: bytes or messages."""

    def first_position(self) -> int:
        """Return the position where an export starts."""

    def end(self, last: Manifest | None) -> int:
        """Return the current end position of the messages."""

    def plan(
        self, last: Manifest | None, settings: Settings, table: str
    ) -> ExportPlan | None:
        """Return the plan of the next batch; None if there is nothing new."""

    def check_continuity(self, exported: Plan | Manifest, table: str) -> None:
        """Raise a StoreError if the plan or manifest belongs to another source."""

    def list_splits(self, plan: ExportPlan) -> Collection[Part]:
        """Return the splits of a plan that still have messages."""

    def measure_lag(
        self, position: int, end: int, exported_ms: int | None
    ) -> dict[str, Any]:
        """Return the size of the part that is not exported yet, for the status."""

    def close(self) -> None:
        """Close connections."""
