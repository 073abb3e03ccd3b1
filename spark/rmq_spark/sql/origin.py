"""Origin: provides the tables of a database.  Stores: the origin of local stores."""

import contextlib
import os
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rmq_spark.segments.schema import BROKER_NAME
from rmq_spark.sql.archive import ArchiveSnapshot
from rmq_spark.sql.dataset import BrokerLog, LogDataset, MessageDataset, ScanSettings
from rmq_spark.sql.log_snapshot import StoreLog

RECENT_SPLITS: Final = 2
"""Number of splits that are searched for topics without a queue on the disk: 32 MiB."""


class Origin(Protocol):
    """Messages of brokers; each statement reads a snapshot."""

    @property
    def messages(self) -> MessageDataset:
        """All messages, without system topics."""

    @property
    def all_messages(self) -> MessageDataset:
        """All messages."""

    @property
    def after_archive(self) -> MessageDataset | None:
        """The messages that an archive does not have; None without logs."""

    @property
    def queues(self) -> ds.Dataset | None:
        """The table of queues; None if SQL computes it from all messages."""

    def freeze(self, archive: ArchiveSnapshot | None) -> None:
        """Take the snapshot for a statement."""

    def list_segments(self) -> pa.Table:
        """Return the table of segments."""

    def topics(self) -> set[str]:
        """Return the topics that are known without a scan."""

    def recent_topics(self) -> set[str]:
        """Return the topics of the last messages; some may be missing in `topics`."""

    def finish(self) -> None:
        """End a statement after all its rows were read."""

    def close(self) -> None:
        """Close connections."""


class Stores:
    """The logs of stores on this machine."""

    queues = None

    def __init__(self, logs: Sequence[StoreLog], limits: ScanSettings) -> None:
        self._logs = logs
        self._sources: list[BrokerLog] = []
        self._rest: list[BrokerLog] = []
        self.messages = LogDataset(self._sources, limits, with_system=False)
        self.all_messages = LogDataset(self._sources, limits, with_system=True)
        self.after_archive = LogDataset(self._rest, limits, with_system=False)

    def freeze(self, archive: ArchiveSnapshot | None) -> None:
        """Take snapshots of all logs, and of their parts after the archive."""
        self._sources[:] = [
            BrokerLog(log.freeze(), log.broker_name) for log in self._logs
        ]
        ends = {} if archive is None else archive.ends
        self._rest[:] = [
            source.after_archive(ends[source.broker_name])
            if source.broker_name in ends
            else source
            for source in self._sources
        ]

    def list_segments(self) -> pa.Table:
        """Return the table of segments."""
        return segments_table(self._sources)

    def topics(self) -> set[str]:
        """Return the topics with queues on the disk; the newest may be missing."""
        names: set[str] = set()
        for log in self._logs:
            with contextlib.suppress(OSError):  # a folder of segments has no queues
                names.update(os.listdir(log.store / "consumequeue"))
        return names

    def recent_topics(self) -> set[str]:
        """Return the topics of the last messages of each log."""
        names: set[str] = set()
        for source in self._sources:
            last = source.log.tail[-RECENT_SPLITS:]
            if last:
                is_recent = (pc.field(BROKER_NAME) == source.broker_name) & (
                    pc.field("physicalOffset") >= last[0].start
                )
                for batch in self.all_messages.scan_batches(["topic"], is_recent):
                    names.update(pc.unique(batch.column(0)).to_pylist())
        return names

    def finish(self) -> None:
        """Save the cache of splits."""
        for log in self._logs:
            log.kept.save()

    def close(self) -> None:
        """Do nothing: there is no connection."""


def segments_table(sources: Sequence[BrokerLog]) -> pa.Table:
    """Return the table of segments."""
    rows = [
        {
            "brokerName": source.broker_name,
            "path": segment.path,
            "startOffset": segment.base_offset,
            "endOffset": min(segment.end_offset, max(source.log.end, 0)),
            "fileBytes": segment.size,
        }
        for source in sources
        for segment in source.log.segments
    ]
    whole = pa.int64()
    columns = [("brokerName", pa.string()), ("path", pa.string())]
    columns += [(name, whole) for name in ("startOffset", "endOffset", "fileBytes")]
    return pa.Table.from_pylist(rows, schema=pa.schema(columns))
