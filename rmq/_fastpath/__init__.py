"""Compiled leaves: bytes, addresses, descriptors. The rest of rmq imports from here.

A module is loaded when one of its names is first asked for. So a client loads nothing
of what serves a broker, and runs where that cannot be compiled. Only `columns` is not
here: Spark reads with it, a broker has no use for it.

The stubs (`.pyi`) have signatures only; the docstrings are in the `.pyx`.
"""

import importlib

_NAMES = {
    "handlers.ack_path": "AckPath",
    "handlers.ack_table": "AckMarks AckTable",
    "log.encode": "RecordEncoder record_size",
    "bytes.checksum": "body_crc crc32",
    "handlers.commit_path": "CommitPath",
    "handlers.commit_table": "CommitTable",
    "reactor.connections": "Connections EventKind",
    "log.decode": "Record RecordStatus RecordView check_record decode_record",
    "log.dispatch": "DispatchResult QueueDispatcher",
    "log.extent": "Extent",
    "log.flush_times": "FLUSH_BOUNDS_S FlushTimes",
    "reactor.grants": "Grants",
    "bytes.hashing": "java_hash tags_code",
    "handlers.heartbeat_path": "HeartbeatPath",
    "handlers.held_pulls": "HeldPullCounts ReturnedPull",
    "log.index_table": "IndexTable find_in_log index_file_size",
    "reactor.inner_loop": "InnerLoop",
    "log.layout": "QueueEntryLayout RecordFlag RecordLayout RecordMagic",
    "log.log_reader": "LogReader",
    "log.log_writer": "LogWriter",
    "log.mapped_file": "MappedFile",
    "reactor.native": "NativeHandler",
    "log.new_keys": "NewKeys",
    "bytes.properties": "decode_properties encode_properties",
    "handlers.pull_path": "PullPath",
    "handlers.pull_table": "PullTable PullView",
    "log.queue_file": "clear_entries find_entries_end read_entry_at write_entries",
    "log.queue_tail": "SIZE_BOUNDS QueueTail TailSet",
    "reactor.reactor": "Reactor ReactorStatistics",
    "reactor.rpc_times": "RPC_BOUNDS_MS RpcTime RpcTimes",
    "log.scan": "QueueScan ScanStop WalkedRecord read_entry scan_queue survey_log "
    "topic_hash walk_log",
    "handlers.send_path": "SendPath",
    "handlers.send_table": "SendTable",
    "log.tail": "LogTail",
    "log.tail_ring": "TailRing",
    "handlers.timed_sends": "TimedSends",
    "log.timer_units": "add_units due_records walk_units",
    "bytes.unique_keys": "UniqueKeys",
    "log.watermark": "Watermark",
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
