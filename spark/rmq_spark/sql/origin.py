"""Origin: where the tables of a database come from; Stores: from folders of brokers."""

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
"""Where topics are looked for that have no queue on the disk yet: 32 MiB."""


class Origin(Protocol):
    """Messages of brokers, frozen for each statement."""

    @property
    def messages(self) -> MessageDataset:
        """All messages but those of topics of the system."""

    @property
    def all_messages(self) -> MessageDataset:
        """All messages."""

    @property
    def after_archive(self) -> MessageDataset | None:
        """The messages that an archive does not have, if that can be known."""

    @property
    def queues(self) -> ds.Dataset | None:
        """The table of queues; None: it is counted from all messages."""

    def freeze(self, archive: ArchiveSnapshot | None) -> None:
        """Begin a statement: everything ends now."""

    def segments(self) -> pa.Table:
        """The table of segments."""

    def topics(self) -> set[str]:
        """Topics that are known at once."""

    def recent_topics(self) -> set[str]:
        """Topics of the last messages; some are not among `topics` yet."""

    def finish(self) -> None:
        """End a statement that has given all its rows."""

    def close(self) -> None:
        """Free what it holds."""


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
        """Find where each log ends now, and where it goes on after the archive."""
        self._sources[:] = [
            BrokerLog(log.freeze(), log.broker_name) for log in self._logs
        ]
        ends = {} if archive is None else archive.ends
        self._rest[:] = [
            source.after(ends[source.broker_name])
            if source.broker_name in ends
            else source
            for source in self._sources
        ]

    def segments(self) -> pa.Table:
        """The table of segments."""
        return segments_table(self._sources)

    def topics(self) -> set[str]:
        """The topics with queues on the disk, where the newest may not be yet."""
        names: set[str] = set()
        for log in self._logs:
            with contextlib.suppress(OSError):  # a folder of segments has no queues
                names.update(os.listdir(log.store / "consumequeue"))
        return names

    def recent_topics(self) -> set[str]:
        """The topics of the last messages of each log."""
        names: set[str] = set()
        for source in self._sources:
            last = source.log.tail[-RECENT_SPLITS:]
            if last:
                is_recent = (pc.field(BROKER_NAME) == source.broker_name) & (
                    pc.field("physicalOffset") >= last[0].start
                )
                for batch in self.all_messages.batches(["topic"], is_recent):
                    names.update(pc.unique(batch.column(0)).to_pylist())
        return names

    def finish(self) -> None:
        """Keep the store times that were found."""
        for log in self._logs:
            log.kept.save()

    def close(self) -> None:
        """Nothing is held."""


def segments_table(sources: Sequence[BrokerLog]) -> pa.Table:
    """The table of segments."""
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
