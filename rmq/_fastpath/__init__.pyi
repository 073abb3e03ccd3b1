from rmq._fastpath.bytes.checksum import body_crc, crc32
from rmq._fastpath.bytes.hashing import java_hash, tags_code
from rmq._fastpath.bytes.properties import decode_properties, encode_properties
from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.ack_table import AckMarks, AckTable
from rmq._fastpath.handlers.commit_path import CommitPath
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq._fastpath.handlers.held_pulls import HeldPullCounts, ReturnedPull
from rmq._fastpath.handlers.pull_path import PullPath
from rmq._fastpath.handlers.pull_table import PullTable, PullView
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.handlers.timed_sends import TimedSends
from rmq._fastpath.log.decode import (
    Record,
    RecordStatus,
    RecordView,
    check_record,
    decode_record,
)
from rmq._fastpath.log.dispatch import DispatchResult, QueueDispatcher
from rmq._fastpath.log.encode import RecordEncoder, record_size
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.flush_times import FLUSH_BOUNDS_S, FlushTimes
from rmq._fastpath.log.index_table import IndexTable, find_in_log, index_file_size
from rmq._fastpath.log.layout import (
    QueueEntryLayout,
    RecordFlag,
    RecordLayout,
    RecordMagic,
)
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq._fastpath.log.queue_file import (
    clear_entries,
    find_entries_end,
    read_entry_at,
    write_entries,
)
from rmq._fastpath.log.queue_tail import SIZE_BOUNDS, QueueTail, TailSet
from rmq._fastpath.log.scan import (
    QueueScan,
    ScanStop,
    WalkedRecord,
    read_entry,
    scan_queue,
    survey_log,
    topic_hash,
    walk_log,
)
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.timer_units import add_units, due_records, walk_units
from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import Connections, EventKind
from rmq._fastpath.reactor.grants import Grants
from rmq._fastpath.reactor.inner_loop import InnerLoop
from rmq._fastpath.reactor.native import NativeHandler
from rmq._fastpath.reactor.reactor import Reactor, ReactorStatistics
from rmq._fastpath.reactor.rpc_times import RPC_BOUNDS_MS, RpcTime, RpcTimes

__all__ = [
    "FLUSH_BOUNDS_S",
    "RPC_BOUNDS_MS",
    "SIZE_BOUNDS",
    "AckMarks",
    "AckPath",
    "AckTable",
    "CommitPath",
    "CommitTable",
    "Connections",
    "DispatchResult",
    "EventKind",
    "Extent",
    "FlushTimes",
    "Grants",
    "HeartbeatPath",
    "HeldPullCounts",
    "IndexTable",
    "InnerLoop",
    "LogReader",
    "LogTail",
    "LogWriter",
    "MappedFile",
    "NativeHandler",
    "NewKeys",
    "PullPath",
    "PullTable",
    "PullView",
    "QueueDispatcher",
    "QueueEntryLayout",
    "QueueScan",
    "QueueTail",
    "Reactor",
    "ReactorStatistics",
    "Record",
    "RecordEncoder",
    "RecordFlag",
    "RecordLayout",
    "RecordMagic",
    "RecordStatus",
    "RecordView",
    "ReturnedPull",
    "RpcTime",
    "RpcTimes",
    "ScanStop",
    "SendPath",
    "SendTable",
    "TailRing",
    "TailSet",
    "TimedSends",
    "UniqueKeys",
    "WalkedRecord",
    "Watermark",
    "add_units",
    "body_crc",
    "check_record",
    "clear_entries",
    "crc32",
    "decode_properties",
    "decode_record",
    "due_records",
    "encode_properties",
    "find_entries_end",
    "find_in_log",
    "index_file_size",
    "java_hash",
    "read_entry",
    "read_entry_at",
    "record_size",
    "scan_queue",
    "survey_log",
    "tags_code",
    "topic_hash",
    "walk_log",
    "walk_units",
    "write_entries",
]
