"""Compiled leaves: bytes, addresses, descriptors. The rest of rmq imports from here.

A module is loaded when one of its names is first asked for. So a client loads nothing
of what serves a broker, and runs where that cannot be compiled. Only `columns` is not
here: Spark reads with it, a broker has no use for it.
"""

import importlib

_NAMES = {
    "ack_path": "AckPath",
    "ack_table": "AckMarks AckTable",
    "append": "RecordEncoder record_size",
    "checksum": "body_crc crc32",
    "commit_path": "CommitPath",
    "commit_table": "CommitTable",
    "connections": "Connections EventKind",
    "decode": "Record RecordStatus RecordView check_record decode_record",
    "dispatch": "Dispatched QueueDispatcher",
    "extent": "Extent",
    "flush_times": "FLUSH_BOUNDS_S FlushTimes",
    "grants": "Grants",
    "hashing": "java_hash tags_code",
    "heartbeat_path": "HeartbeatPath",
    "held_pulls": "HeldPullCounts ReturnedPull",
    "index_table": "IndexTable find_in_log index_file_size",
    "inner_loop": "InnerLoop",
    "layout": "QueueEntryLayout RecordFlag RecordLayout RecordMagic",
    "log_reader": "LogReader",
    "log_writer": "LogWriter",
    "mapped_file": "MappedFile",
    "native": "NativeHandler",
    "new_keys": "NewKeys",
    "properties": "decode_properties encode_properties",
    "pull_path": "PullPath",
    "pull_table": "PullTable PullView",
    "queue_file": "clear_entries find_entries_end read_entry_at write_entries",
    "queue_tail": "SIZE_BOUNDS QueueTail TailSet",
    "reactor": "Reactor ReactorStatistics",
    "rpc_times": "RPC_BOUNDS_MS RpcTime RpcTimes",
    "scan": "QueueScan ScanStop WalkedRecord read_entry scan_queue survey_log "
    "topic_hash walk_log",
    "send_path": "SendPath",
    "send_table": "SendTable",
    "tail": "LogTail",
    "tail_ring": "TailRing",
    "timed_sends": "TimedSends",
    "timer_units": "add_units due_records walk_units",
    "unique_keys": "UniqueKeys",
    "watermark": "Watermark",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    value: object = getattr(module, name)
    globals()[name] = value
    return value
