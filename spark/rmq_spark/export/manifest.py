"""The log of an export: plans and manifests of one broker, which only grow in number.

`_rmq_manifest/<broker>/<seq20>.plan` describes what batch `seq` will do, `<seq20>.json`
what it has done.  Both are JSON of one object with a CRC of the rest in `crc`.  Of two
exporters that create the same one the first wins.  Each broker of a table has a folder,
so nobody waits for another broker.  `hint` has the number of an old manifest, from
which a reader begins to list.

Crash contract: a file under its final name is whole.  A plan without its manifest is
run again, with the same ranges and names, by the next exporter; so a batch leaves
either only files of its plan, or its manifest.  Manifests follow one another:
each one starts where the previous one ended.
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
"""Where messages come from: the log of a store, or live topics."""
_PLAN: Final = ".plan"
_DONE: Final = ".json"
_HINT: Final = "hint"
HINT_EVERY: Final = 64
"""Batches: a listing from the hint on is one request."""
READERS: Final = 16
"""Manifests that are read at once: in an object store each takes a while."""
_ESCAPED: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{}\[\]^]""")

B = TypeVar("B", bound="Batch")


class LastRecord(msgspec.Struct, frozen=True):
    """What identifies the end of a part of the log: the record before it."""

    offset: int
    size: int
    crc: int


class DataFile(msgspec.Struct, frozen=True):
    """One exported file; `queues` are the first and last offset by queue id."""

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
    """What every batch of one export has in common."""

    broker_name: str
    table_format: str
    columns: list[str]
    properties_format: str
    with_system_topics: bool
    topics: list[str] = []
    """Only these; all if there are none."""
    bodies: Bodies | None = None
    """How bodies become columns."""
    table: str = "messages"
    """Its name in a catalog."""
    feed: str = STORE


def differences(begun: Settings, now: Settings) -> str:
    """Return what differs: `table_format=parquet, not delta`."""
    pairs = zip(begun.__struct_fields__, msgspec.structs.astuple(begun),
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
    """A part of one segment of the log."""

    base_offset: int
    start: int
    end: int
    check_crc: bool


class QueueCut(NamedTuple):
    """A part of one queue."""

    topic: str
    queue_id: int
    start: int
    end: int


class TopicsRange(NamedTuple):
    """Parts of queues that one task reads."""

    start: int
    end: int
    cuts: list[QueueCut]


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch takes the table from `start` to `end`: of the log, or of all messages.

    `positions`: of live topics, for each topic, broker and queue, its next message.
    """

    seq: int
    settings: Settings
    store: str
    start: int
    end: int
    last: LastRecord | None
    positions: dict[str, dict[str, dict[str, int]]] = {}


class ExportPlan(Batch, frozen=True, kw_only=True, tag_field="kind", tag="export"):
    """The batch will export these ranges."""

    ranges: list[LogRange]
    bundles: list[TopicsRange] = []

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each task."""
        logs = [(each.start, each.end) for each in self.ranges]
        return logs or [(each.start, each.end) for each in self.bundles]


class MergePlan(Batch, frozen=True, kw_only=True, tag_field="kind", tag="optimize"):
    """The batch will merge files: each list is the new file and those it replaces."""

    merges: list[list[str]]


Plan = ExportPlan | MergePlan


class Manifest(Batch, frozen=True, kw_only=True):
    """What a batch has done; `lost` are removed parts of the log.

    `left_out` are the messages of each topic of the system that was not exported.
    """

    added: list[DataFile]
    removed: list[str]
    lost: list[tuple[int, int]]
    left_out: dict[str, int] = {}
    quarantined: list[DataFile] = []
    """Files of messages whose bodies do not fit."""
    misfits: int = 0
    """Bodies that do not fit, also those that are in the table."""


class ExportLog:
    """Plans and manifests of one broker in the folder of a table."""

    def __init__(self, folder: Folder, broker_name: str) -> None:
        self.folder = folder
        self._chain = f"{MANIFESTS}/{escaped(broker_name)}"
        self._known = ""
        """The newest manifest that was seen: listings begin there."""
        self._last: tuple[str, Manifest] | None = None
        """It never changes, and each batch asks for it several times."""

    def prepare(self) -> None:
        """Make the folder; refuse one with other contents."""
        self.folder.prepare()
        old = [name for name in self.folder.names(MANIFESTS) if name.endswith(_DONE)]
        if old:
            raise StoreError(
                f"{self.folder.name} was begun by an older rmq-spark: move the plans "
                f"and manifests of {MANIFESTS} to {self._chain}, or choose another "
                "folder"
            )

    def last(self) -> Manifest | None:
        """The newest manifest."""
        name = self._last_name()
        if not name:
            return None
        if self._last is None or self._last[0] != name:
            self._last = name, self._read(name, Manifest)
        return self._last[1]

    def pending(self) -> Plan | None:
        """The plan that has no manifest yet."""
        done = self._last_name()
        name = _name(_number(done) + 1 if done else 0, _PLAN)
        if not self.folder.has(f"{self._chain}/{name}"):
            return None
        # mypy knows no union as a type
        return self._read(name, Plan)  # type: ignore[arg-type]

    def planned_end(self, seq: int) -> int:
        """Where a batch ends that has been planned."""
        # mypy knows no union as a type
        plan: Plan = self._read(_name(seq, _PLAN), Plan)  # type: ignore[arg-type]
        return plan.end

    def manifests(self, last: int | None = None) -> list[Manifest]:
        """All manifests, or those up to `last`.

        A missing one, or one that does not follow, is an error.
        """
        names = [n for n in self.folder.names(self._chain) if _is(n, _DONE)]
        if last is not None:
            names = [name for name in names if _number(name) <= last]
        with ThreadPoolExecutor(READERS) as pool:
            found = list(pool.map(lambda name: self._read(name, Manifest), names))
        for index, manifest in enumerate(found):
            before = found[index - 1].end if index else manifest.start
            if manifest.seq != index or manifest.start != before:
                raise StoreError(
                    f"{self._path(_name(manifest.seq, _DONE))} does not follow the "
                    "previous one: a manifest was removed or changed"
                )
        return found

    def files(self, last: int | None = None) -> dict[str, DataFile]:
        """Return the files of this broker in the table, after batch `last`, by path."""
        return files_after(self.manifests(last))

    def write_plan(self, plan: Plan) -> bool:
        """Publish a plan; False if somebody else has taken its number."""
        return self._publish(_name(plan.seq, _PLAN), plan)

    def write_manifest(self, manifest: Manifest) -> bool:
        """Publish a manifest; False if somebody else has taken its number."""
        name = _name(manifest.seq, _DONE)
        if not self._publish(name, manifest):
            return False
        if manifest.seq % HINT_EVERY == HINT_EVERY - 1:
            self.folder.replace(f"{self._chain}/{_HINT}", name.encode())
        return True

    def _last_name(self) -> str:
        """The name of the newest manifest; empty if there is none."""
        known = self._known or self._hint()
        for name in self.folder.names(self._chain, known):
            if _is(name, _DONE):
                known = name
        self._known = known
        return known

    def _hint(self) -> str:
        try:
            name = self.folder.read(f"{self._chain}/{_HINT}").decode("ascii", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return ""
        is_there = _is(name, _DONE) and self.folder.has(f"{self._chain}/{name}")
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
        if version != FORMAT or crc != _crc(values):
            raise StoreError(
                f"{path} is not as rmq-spark wrote it: it was edited, or is of another "
                "version; restore it from a copy"
            )
        return msgspec.convert(values, kind)

    def _publish(self, name: str, batch: Batch) -> bool:
        values = msgspec.to_builtins(batch)
        text = json.dumps(
            values | {"format": FORMAT, "crc": _crc(values)}, ensure_ascii=False
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
    """The brokers that a table has messages from."""
    return [unquote(name) for name in folder.folders(MANIFESTS)]


def table_files(folder: Folder) -> dict[str, DataFile]:
    """The files that are part of a table, of all its brokers, by path."""
    files: dict[str, DataFile] = {}
    for broker in brokers_of(folder):
        files |= ExportLog(folder, broker).files()
    return files


def escaped(name: str) -> str:
    """As Hive does, so that any reader of partitioned folders finds the name again."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", name)


def _name(number: int, suffix: str) -> str:
    return f"{number:020d}{suffix}"


def _number(name: str) -> int:
    return int(name[:20])


def _is(name: str, suffix: str) -> bool:
    return name[:20].isdecimal() and name[20:] == suffix


def _crc(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
