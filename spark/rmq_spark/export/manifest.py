"""The log of an export: plans and manifests of one broker, append-only.

`_rmq_manifest/<broker>/<seq20>.plan` has the ranges of batch `seq`, `<seq20>.json` its
outcome. Each of the two files is a JSON object; `crc` is the CRC of its other fields.
If two
exporters create the same file, the first one wins.  Each broker of a table has its own
folder, so that brokers do not wait for each other. `hint` has the number of an older
manifest, at which a listing starts.

Crash contract: a file with its final name is complete.  The next exporter runs a plan
without a manifest again, with the same ranges and file names. So after a batch there
are either only files of its plan, or its manifest. Each manifest starts at the end
position of the manifest before it.
"""

import json
import re
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec

from rmq.core.errors import StoreError
from rmq_spark.export.body_schema import Bodies
from rmq_spark.export.folder import MANIFESTS, Folder

FORMAT: Final = 1
STORE: Final = "store"
TOPICS: Final = "topics"
"""Kinds of sources: the log of a store, or live topics."""
_PLAN: Final = ".plan"
_DONE: Final = ".json"
_HINT: Final = "hint"
HINT_EVERY: Final = 64
"""Number of batches between two hints; a listing from the hint on is one request."""
READERS: Final = 16
"""Number of manifests that are read at once, because a read from an object store is
slow.
"""
_ESCAPED: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""")

B = TypeVar("B", bound="Batch")


class LastRecord(msgspec.Struct, frozen=True):
    """Identifies the end of a batch by the last record before it."""

    offset: int
    size: int
    crc: int


class DataFile(msgspec.Struct, frozen=True):
    """One exported file; `queues` has first and last queue offset by queue id."""

    path: str
    topic: str
    dt: str
    rows: int
    bytes: int
    min_offset: int
    max_offset: int
    min_store_ms: int
    max_store_ms: int
    queues: dict[str, list[int]]


class Settings(msgspec.Struct, frozen=True):
    """The settings that all batches of one export share."""

    broker_name: str
    table_format: str
    columns: list[str]
    properties_format: str
    with_system_topics: bool
    topics: list[str] = []
    """Only these topics; all topics if the list is empty."""
    bodies: Bodies | None = None
    """The schema of bodies, if they become columns."""
    table: str = "messages"
    """Name of an Iceberg table in its catalog."""
    feed: str = STORE


def describe_differences(existing: Settings, now: Settings) -> str:
    """Return the differences as text: `table_format=parquet, not delta`."""
    pairs = zip(existing.__struct_fields__, msgspec.structs.astuple(existing),
                msgspec.structs.astuple(now), strict=True)  # fmt: skip
    return ", ".join(
        f"{name}={_text(was)}, not {_text(wanted)}"
        for name, was, wanted in pairs
        if was != wanted
    )


def _text(value: object) -> str:
    if isinstance(value, Bodies):
        fields = ", ".join(f"{name} {kind}" for name, kind in value.fields)
        return f"{value.form} with {fields}"
    return ",".join(value) if isinstance(value, list) else str(value).lower()


class LogRange(NamedTuple):
    """A range of one segment of the log."""

    base_offset: int
    start: int
    end: int
    check_crc: bool


class QueueCut(NamedTuple):
    """A range of queue offsets of one queue."""

    topic: str
    queue_id: int
    start: int
    end: int


class TopicsRange(NamedTuple):
    """The ranges of queues that one task reads; `start` and `end` count messages."""

    start: int
    end: int
    cuts: list[QueueCut]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch adds [start, end) to the table, in bytes of the log or in messages.

    `positions` has the place of each queue by topic, broker and queue, for live topics:
    the offset of a stream, see `rmq_spark.live.plan`.
    """

    seq: int
    settings: Settings
    store: str
    start: int
    end: int
    last: LastRecord | None
    positions: dict[str, dict[str, dict[str, int | list[int | None]]]] = {}


class ExportPlan(Batch, frozen=True, kw_only=True, tag_field="kind", tag="export"):
    """A batch that exports these ranges."""

    ranges: list[LogRange]
    bundles: list[TopicsRange] = []

    @property
    def task_ranges(self) -> list[tuple[int, int]]:
        """Start and end of each task."""
        logs = [(each.start, each.end) for each in self.ranges]
        return logs or [(each.start, each.end) for each in self.bundles]


class MergePlan(Batch, frozen=True, kw_only=True, tag_field="kind", tag="optimize"):
    """A batch that merges files; each list has the new file, then the replaced ones."""

    merges: list[list[str]]


Plan = ExportPlan | MergePlan


class Manifest(Batch, frozen=True, kw_only=True):
    """The outcome of a batch; `lost` has the missing ranges.

    `left_out` counts the messages of system topics that were not exported.
    """

    added: list[DataFile]
    removed: list[str]
    lost: list[tuple[int, int]]
    left_out: dict[str, int] = {}
    quarantined: list[DataFile] = []
    """Files of rows whose bodies do not fit."""
    misfits: int = 0
    """Number of bodies that do not fit, also of rows in the table."""


class ExportLog:
    """Plans and manifests of one broker in the folder of a table."""

    def __init__(self, folder: Folder, broker_name: str) -> None:
        self.folder = folder
        self._chain = f"{MANIFESTS}/{escape_name(broker_name)}"
        self._known = ""
        """The newest known manifest, where listings start."""
        self._last: tuple[str, Manifest] | None = None
        """Cache of the newest manifest, which never changes."""

    def prepare(self) -> None:
        """Create the folder; StoreError if it has other contents."""
        self.folder.prepare()
        old = [
            name for name in self.folder.list_files(MANIFESTS) if name.endswith(_DONE)
        ]
        if old:
            raise StoreError(
                f"an older rmq-spark created {self.folder.name}: move the plans and "
                f"manifests in {MANIFESTS} to {self._chain}, or choose another folder"
            )

    def last_manifest(self) -> Manifest | None:
        """Return the newest manifest; None before the first batch."""
        name = self._last_name()
        if not name:
            return None
        if self._last is None or self._last[0] != name:
            self._last = name, self._read(name, Manifest)
        return self._last[1]

    def pending(self) -> Plan | None:
        """Return the plan that has no manifest yet, or None."""
        done = self._last_name()
        name = _file_name(_seq_of(done) + 1 if done else 0, _PLAN)
        if not self.folder.file_exists(f"{self._chain}/{name}"):
            return None
        return self._read(name, Plan)  # type: ignore[arg-type] # a union

    def planned_end(self, seq: int) -> int:
        """Return the end of a planned batch."""
        plan: Plan = self._read(_file_name(seq, _PLAN), Plan)  # type: ignore[arg-type] # a union
        return plan.end

    def read_manifests(self, last: int | None = None) -> list[Manifest]:
        """Return all manifests, or the manifests up to batch `last`.

        StoreError if a manifest is missing, or does not start at the end of the
        manifest before it.
        """
        names = [
            n for n in self.folder.list_files(self._chain) if _has_suffix(n, _DONE)
        ]
        if last is not None:
            names = [name for name in names if _seq_of(name) <= last]
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(lambda name: self._read(name, Manifest), names))
        for index, manifest in enumerate(found):
            before = found[index - 1].end if index else manifest.start
            if manifest.seq != index or manifest.start != before:
                raise StoreError(
                    f"{self._path(_file_name(manifest.seq, _DONE))} does not start "
                    "where the previous one ended: a manifest was removed or changed"
                )
        return found

    def files(self, last: int | None = None) -> dict[str, DataFile]:
        """Return the files of this broker in the table, after batch `last`, by path."""
        return files_after(self.read_manifests(last))

    def write_plan(self, plan: Plan) -> bool:
        """Publish a plan; returns False if another exporter has used its number."""
        return self._publish(_file_name(plan.seq, _PLAN), plan)

    def write_manifest(self, manifest: Manifest) -> bool:
        """Publish a manifest; returns False if another exporter has done so."""
        name = _file_name(manifest.seq, _DONE)
        if not self._publish(name, manifest):
            return False
        if manifest.seq % HINT_EVERY == HINT_EVERY - 1:
            self.folder.replace(f"{self._chain}/{_HINT}", name.encode())
        return True

    def _last_name(self) -> str:
        """Return the name of the newest manifest; empty before the first batch."""
        known = self._known or self._hint()
        for name in self.folder.list_files(self._chain, known):
            if _has_suffix(name, _DONE):
                known = name
        self._known = known
        return known

    def _hint(self) -> str:
        try:
            name = self.folder.read(f"{self._chain}/{_HINT}").decode("ascii", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return ""
        is_there = _has_suffix(name, _DONE) and self.folder.file_exists(
            f"{self._chain}/{name}"
        )
        return name if is_there else ""

    def _path(self, name: str) -> str:
        return f"{self.folder.name}/{self._chain}/{name}"

    def _read(self, name: str, kind: type[B]) -> B:
        path = self._path(name)
        try:
            text = self.folder.read(f"{self._chain}/{name}")
            values: dict[str, Any] = json.loads(text)
            crc, version = values.pop("crc"), values.pop("format")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        if version != FORMAT or crc != _crc_of(values):
            raise StoreError(
                f"{path} is not as rmq-spark wrote it: it was edited, or has another "
                "version; restore it from a backup"
            )
        return msgspec.convert(values, kind)

    def _publish(self, name: str, batch: Batch) -> bool:
        values = msgspec.to_builtins(batch)
        text = json.dumps(
            values | {"format": FORMAT, "crc": _crc_of(values)}, ensure_ascii=False
        )
        return self.folder.create(f"{self._chain}/{name}", text.encode())


def files_after(manifests: Iterable[Manifest]) -> dict[str, DataFile]:
    """Return the files that are part of a table after these batches, by path."""
    files: dict[str, DataFile] = {}
    for manifest in manifests:
        for path in manifest.removed:
            files.pop(path, None)
        files.update((file.path, file) for file in manifest.added)
    return files


def brokers_of(folder: Folder) -> list[str]:
    """Return the brokers whose messages a table has."""
    return [unquote(name) for name in folder.list_folders(MANIFESTS)]


def table_files(folder: Folder) -> dict[str, DataFile]:
    """Return the files that are part of a table, of all its brokers, by path."""
    files: dict[str, DataFile] = {}
    for broker in brokers_of(folder):
        files |= ExportLog(folder, broker).files()
    return files


def escape_name(name: str) -> str:
    """Escape a name as Hive does, so that readers of partitions restore it."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name)


def _file_name(number: int, suffix: str) -> str:
    return f"{number:020d}{suffix}"


def _seq_of(name: str) -> int:
    return int(name[:20])


def _has_suffix(name: str, suffix: str) -> bool:
    return name[:20].isdecimal() and name[20:] == suffix


def _crc_of(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
