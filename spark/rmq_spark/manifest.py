"""The log of an export: a folder of plans and manifests that only grows.

`_rmq_manifest/<seq20>.plan` describes what batch `seq` will do, `<seq20>.json` what it
has done.  Both are JSON of one object with a CRC of the rest in `crc`.  A file gets its
name by `link`, which fails if the name is taken: the first of two exporters wins.
Contents and folder are synced before and after.

Crash contract: a file under its final name is whole.  A plan without its manifest is
run again, with the same ranges and names, by the next exporter; so a batch leaves
either only files of its plan, or its manifest.  Manifests follow one another:
each one starts where the previous one ended.
"""

import contextlib
import fcntl
import json
import os
import socket
import uuid
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from rmq.errors import StoreError
from rmq.files import sync_directory

FOLDER: Final = "_rmq_manifest"
FORMAT: Final = 1
_PLAN: Final = ".plan"
_DONE: Final = ".json"
_MAX_NAME: Final = 100
"""Characters of the name of a process in a file."""

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
    return ",".join(value) if isinstance(value, list) else str(value).lower()


class LogRange(NamedTuple):
    """A part of one segment of the log."""

    base_offset: int
    start: int
    end: int
    check_crc: bool


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch takes the table from `start` to `end` of the log."""

    seq: int
    settings: Settings
    store: str
    start: int
    end: int
    last: LastRecord | None


class ExportPlan(Batch, frozen=True, kw_only=True, tag_field="kind", tag="export"):
    """The batch will export these ranges."""

    ranges: list[LogRange]


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


class ExportLog:
    """Plans and manifests of one output folder."""

    def __init__(self, out: str | Path) -> None:
        self.out = Path(out)
        self._folder = self.out / FOLDER

    def prepare(self) -> None:
        """Make the folder; refuse one with other contents."""
        self.out.mkdir(parents=True, exist_ok=True)
        names = os.listdir(self.out)
        if names and FOLDER not in names:
            raise StoreError(
                f"{self.out} is neither empty nor an export of rmq-spark: choose a "
                "folder of its own"
            )
        self._folder.mkdir(exist_ok=True)
        sync_directory(self.out)

    def last(self) -> Manifest | None:
        """The newest manifest."""
        done = self._numbers(_DONE)
        return self._manifest(done[-1]) if done else None

    def pending(self) -> Plan | None:
        """The plan that has no manifest yet."""
        plans, done = self._numbers(_PLAN), self._numbers(_DONE)
        number = done[-1] + 1 if done else 0
        if number not in plans:
            return None
        # mypy knows no union as a type
        return self._read(number, _PLAN, Plan)  # type: ignore[arg-type]

    def manifests(self) -> list[Manifest]:
        """All manifests; a missing one, or one that does not follow, is an error."""
        found = [self._manifest(number) for number in self._numbers(_DONE)]
        for index, manifest in enumerate(found):
            before = found[index - 1].end if index else manifest.start
            if manifest.seq != index or manifest.start != before:
                raise StoreError(
                    f"{self._path(manifest.seq, _DONE)} does not follow the previous "
                    "one: a manifest was removed or changed"
                )
        return found

    def files(self) -> dict[str, DataFile]:
        """The files that are part of the table, by path."""
        files: dict[str, DataFile] = {}
        for manifest in self.manifests():
            for path in manifest.removed:
                files.pop(path, None)
            files.update((file.path, file) for file in manifest.added)
        return files

    def write_plan(self, plan: Plan) -> bool:
        """Publish a plan; False if somebody else has taken its number."""
        return self._publish(plan.seq, _PLAN, plan)

    def write_manifest(self, manifest: Manifest) -> bool:
        """Publish a manifest; False if somebody else has taken its number."""
        return self._publish(manifest.seq, _DONE, manifest)

    @contextlib.contextmanager
    def committing(self) -> Iterator[None]:
        """Held while a batch becomes part of the table; one exporter at a time."""
        with (self._folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Held by a service that fills the table; one at a time on this host."""
        self.prepare()
        with (self._folder / "follower").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                file.seek(0)
                raise StoreError(
                    f"{self.out} is filled by another rmq-spark follow, process "
                    f"{file.read(_MAX_NAME)}: stop that one, or choose another folder"
                ) from error
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    def _manifest(self, number: int) -> Manifest:
        return self._read(number, _DONE, Manifest)

    def _numbers(self, suffix: str) -> list[int]:
        if not self._folder.is_dir():
            return []
        return sorted(
            int(path.stem)
            for path in self._folder.iterdir()
            if path.suffix == suffix and path.stem.isdecimal()
        )

    def _path(self, number: int, suffix: str) -> Path:
        return self._folder / f"{number:020d}{suffix}"

    def _read(self, number: int, suffix: str, kind: type[B]) -> B:
        path = self._path(number, suffix)
        try:
            values: dict[str, Any] = json.loads(path.read_text())
            crc, version = values.pop("crc"), values.pop("format")
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise StoreError(f"{path} cannot be read: {error}") from error
        if version != FORMAT or crc != _crc(values):
            raise StoreError(
                f"{path} is not as rmq-spark wrote it: it was edited, or is of another "
                "version; restore it from a copy"
            )
        return msgspec.convert(values, kind)

    def _publish(self, number: int, suffix: str, batch: Batch) -> bool:
        values = msgspec.to_builtins(batch)
        text = json.dumps(
            values | {"format": FORMAT, "crc": _crc(values)}, ensure_ascii=False
        )
        final = self._path(number, suffix)
        draft = final.with_name(f"{final.name}.{writer_name()}.tmp")
        try:
            draft.write_text(text)
            return link_once(draft, final)
        finally:
            draft.unlink(missing_ok=True)
            sync_directory(self._folder)


def link_once(draft: Path, final: Path) -> bool:
    """Sync a draft and give it a second name; False if that name is taken."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    try:
        os.link(draft, final)
    except FileExistsError:
        return False
    return True


def writer_name() -> str:
    """A name that no other writer uses, for drafts."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


def _crc(values: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(values, sort_keys=True).encode())
