"""Where the messages of an export come from: the log of a store, or live topics.

An export counts places, from where it begins: bytes of a log, or messages of queues.
Its plans, files and manifests are named after these places.
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
    """Sizes of a batch and of a task, and how to handle damage."""

    batch_bytes: int = BATCH_BYTES
    split_bytes: int = SPLIT_BYTES
    confirm_offset: int | None = None
    broker: str | None = None
    allow_loss: bool = False
    skip_corrupt: bool = False
    single_writer: bool = False
    """Nobody else writes to an object store without conditional writes."""
    batch_rows: int = BATCH_ROWS
    """Of live topics."""


DEFAULT_LIMITS: Final = ExportLimits()


class Part(Protocol):
    """One task: the messages of [start, end); pickled for the workers."""

    @property
    def start(self) -> int:
        """The first place."""

    @property
    def end(self) -> int:
        """The place after the last one."""

    def batches(
        self, reading: ReadSettings, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows; LostData if some are gone."""

    def left_out(self, reading: ReadSettings) -> dict[str, int]:
        """The messages of each topic that a reader met and left out."""

    def rest(self) -> "Part | None":
        """What can be read although messages are gone; None: nothing."""


class ExportSource(Protocol):
    """What an exporter asks; it plans in the process of the exporter."""

    @property
    def name(self) -> str:
        """What is exported, for people."""

    @property
    def unit(self) -> str:
        """What places count: bytes or messages."""

    def first(self) -> int:
        """The place where an export begins."""

    def end(self, last: Manifest | None) -> int:
        """The place where the messages end now."""

    def plan(
        self, last: Manifest | None, settings: Settings, table: str
    ) -> ExportPlan | None:
        """The batch after the last one; None: there is nothing new."""

    def check(self, made: Plan | Manifest, table: str) -> None:
        """Raise StoreError if these are not the messages that were exported before."""

    def parts(self, plan: ExportPlan) -> Collection[Part]:
        """The tasks of a plan that can be run."""

    def lag(self, position: int, end: int, exported_ms: int | None) -> dict[str, Any]:
        """How much is not exported yet, for people."""

    def close(self) -> None:
        """End connections."""
