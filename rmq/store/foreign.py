"""Content of Java's directories that this store refuses, or leaves untouched.

The store refuses consume queues in RocksDB (`consumequeue/CURRENT`, or a filled
`consumequeue_rocksdb`), and tables in RocksDB (`config/*/CURRENT`). It also refuses
DLedger logs (`dledger-*`), and queues whose type differs from `config/topics.json`. It
only reports records of POP in RocksDB. `rocksdbstore/` is in every store since 5.5.0
and has no meaning. This module only reads.
"""

from pathlib import Path
from typing import Any

import msgspec

from rmq.core.errors import RemoteProtocolError
from rmq.protocol import fastjson

ACCESS_TABLES = ("users", "acls")
"""RocksDB tables of Java's access control, which rmq does not read."""


class Foreign(msgspec.Struct):
    """The findings; `batch_topics` have queues of type BatchCQ.

    `start_notes` are sentences for the start.
    """

    refusals: list[str] = msgspec.field(default_factory=list)
    batch_topics: set[str] = msgspec.field(default_factory=set)
    start_notes: list[str] = msgspec.field(default_factory=list)


def find_foreign(root: Path) -> Foreign:
    """Check names and tables of a store directory."""
    foreign = Foreign()
    if (root / "consumequeue" / "CURRENT").exists():
        foreign.refusals.append(
            f"{root / 'consumequeue'} is a RocksDB (storeType=defaultRocksDB): rmq "
            "reads queue files only; move the messages with a Java broker first"
        )
    rocks = root / "consumequeue_rocksdb"
    if rocks.is_dir() and any(rocks.iterdir()):
        foreign.refusals.append(
            f"{rocks} holds consume queues in RocksDB: rmq reads queue files only; "
            "switch RocksDB off in the Java broker and let it build queue files"
        )
    foreign.refusals += [
        f"{path} is a DLedger log (enableDLegerCommitLog): rmq reads plain commit "
        "logs only"
        for path in sorted(root.glob("dledger-*"))
    ]
    foreign.refusals += [
        f"{path.parent} is a RocksDB of tables (configManagerVersion=v2, or tables of "
        "storeType=defaultRocksDB): rmq reads JSON tables only; export the tables "
        "with mqadmin rocksDBConfigToJson"
        for path in sorted(root.glob("config/*/CURRENT"))
        if path.parent.name not in ACCESS_TABLES
    ]
    plain, batch = _names(root / "consumequeue"), _names(root / "batchconsumequeue")
    table = root / "config" / "topics.json"
    for topic, config in _table(table, "topicConfigTable").items():
        attributes = config.get("attributes") or {}
        is_batch = _attribute_value(attributes, "queue.type") == "BatchCQ"
        if topic in (plain if is_batch else batch):
            odd = "consumequeue" if is_batch else "batchconsumequeue"
            foreign.refusals.append(
                f"{root / odd / topic} has queues of another type than {table} "
                "defines: restore the table, or move the directory away"
            )
        if is_batch:
            foreign.batch_topics.add(topic)
    _record_rocksdb_of_pop(root, foreign)
    return foreign


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _attribute_value(attributes: dict[str, Any], name: str) -> str:
    """Read an attribute, whose changes are written as `+name`."""
    return str(attributes.get(name, attributes.get("+" + name, "")))


def _record_rocksdb_of_pop(root: Path, foreign: Foreign) -> None:
    """Name the records of POP that a Java broker keeps in a RocksDB."""
    folder = root / "kvStore"
    if folder.is_dir() and any(folder.glob("*.sst")):
        foreign.start_notes.append(
            f"{folder} has records of POP in RocksDB (popConsumerKVServiceEnable), "
            "which rmq does not read; run mqadmin popConsumerRollback on the Java "
            "broker first"
        )


def _table(path: Path, member: str) -> dict[str, dict[str, Any]]:
    """Read one map of a Java table; the `.bak` if the table cannot be read."""
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            value = fastjson.load_json(candidate.read_bytes())
        except (OSError, RemoteProtocolError):
            continue
        table = value.get(member) if isinstance(value, dict) else None
        if isinstance(table, dict):
            return {
                str(name): entry
                for name, entry in table.items()
                if isinstance(entry, dict)
            }
    return {}
