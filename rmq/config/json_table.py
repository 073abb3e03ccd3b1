"""JsonTable: a table in memory and in one of RocketMQ's JSON files.

Layout, seal, older versions, crash contract: see `table_file.py`.
If the file is torn, a start reads an older version and renames the file to
`<name>.bad`. If all versions are torn, the process does not start.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from rmq.config.table_file import SEAL_NAME, TableFile, date_of, find_tear
from rmq.core.clock import Clock
from rmq.core.errors import RemoteProtocolError, RequestRejected, StoreError
from rmq.core.threads import in_thread, join_text
from rmq.protocol import fastjson
from rmq.protocol.bodies import Body
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.codes import ResponseCode
from rmq.protocol.encoded_members import EncodedMembers, LargeObject

T = TypeVar("T")

logger = logging.getLogger(__name__)


_turns: Final = trio.lowlevel.RunVar[trio.Lock]("the tables that encode take turns")


async def encode_in_turns(members: EncodedMembers[Any]) -> None:
    """Encode the members that changed; other tasks run between the turns.

    Only one table has a turn at a time, because a new consumer group changes three
    tables.
    """
    try:
        turn = _turns.get()
    except LookupError:
        turn = trio.Lock()
        _turns.set(turn)
    while members.stale_count:
        async with turn:
            members.encode_some()
            await trio.lowlevel.checkpoint()


class JsonTable(ABC):
    """Known in Java as `ConfigManager`.

    `_large` of a large table lists, by name, the objects of its document whose members
    are encoded one by one; `_content` leaves them empty.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._file = TableFile(path)
        self.loss = ""
        """A sentence about changes that a torn file has lost at the start; or empty."""

        self._clock = clock
        self.data_version = DataVersion()
        self.changed = trio.Event()
        """Set while the file is older than the table."""
        self._saving = trio.Lock()
        self._large: Mapping[str, LargeObject[Any]] = {}
        self._followed: tuple[int, int, int] | None = None

    @abstractmethod
    def _read(self, value: dict[str, Any]) -> None:
        """Fill the table from a file's content; RequestRejected for another shape."""

    @abstractmethod
    def _content(self) -> object:
        """Return the content of the file."""

    def load(self) -> None:
        """Read the newest whole version; without a file the table is empty.

        StoreError if there are files and all are damaged; the files do not change.
        """
        problems: list[str] = []
        for path in (self._path, *self._file.versions()):
            if path.suffix != ".bak" and path != self._path and not problems:
                break  # somebody has removed the table
            try:
                text = path.read_bytes()
            except FileNotFoundError:
                continue
            problem = self._try_read(text)
            if problem is None:
                if path != self._path and problems:
                    self._use_older(path, text, problems)
                return
            problems.append(f"{path}: {problem}")
        if problems:
            raise StoreError(
                f"{'; '.join(problems)}; repair the newest of these files, or remove "
                "them all to start without the table"
            )

    def _use_older(self, path: Path, text: bytes, problems: list[str]) -> None:
        """Rename the torn file, and report the lost changes."""
        for problem in problems:
            logger.error("%s", problem)
        if self._path.exists():
            bad = self._path.with_name(self.file_name + ".bad")
            self._path.rename(bad)
            logger.error("%s was moved to %s", self._path, bad.name)
        self.loss = (
            f"{self.file_name} was damaged. The broker reads {path.name}, which was "
            f"saved {date_of(text)}. Later changes are lost"
        )
        logger.warning("%s: used the backup %s: %s", self._path, path.name, self.loss)

    def follow(self) -> bool:
        """Read the file if its owner, another process or object, has replaced it.

        Log a file that cannot be read; the table is unchanged then. False if there is
        no file.
        """
        try:
            state = self._path.stat()
        except FileNotFoundError:
            return False
        seen = state.st_ino, state.st_mtime_ns, state.st_size
        if seen == self._followed:
            return True
        self._followed = seen
        try:
            problem = self._try_read(self._path.read_bytes())
        except OSError as error:
            problem = str(error)
        if problem is not None:
            logger.error(
                "%s: %s; the broker keeps the content that it read before",
                self._path,
                problem,
            )
        return True

    def _try_read(self, text: bytes) -> str | None:
        tear = find_tear(text)
        if tear is not None:
            return tear
        try:
            value = fastjson.load_json(text)
            if not isinstance(value, dict):
                return "not a JSON object"
            value.pop(SEAL_NAME, None)
            self._read(value)
        except (RemoteProtocolError, RequestRejected) as error:
            return str(error)
        except (ArithmeticError, AttributeError, TypeError, ValueError) as error:
            return f"a value of an unexpected type: {error}"
        return None

    @property
    def file_name(self) -> str:
        """Name of the file in the folder `config`."""
        return self._path.name

    def text(self) -> bytes:
        """Return all of the content at once, as sent to tools and replicas."""
        pieces = [fastjson.dump_json(self._content())]
        for name, members in self._large.items():
            pieces[:1] = members.in_request.fill(pieces[0], name)
        return b"".join(pieces)

    def touch(self) -> None:
        """Mark the table as changed: increase the version; the next save writes."""
        version = self.data_version
        self.data_version = DataVersion(
            state_version=version.state_version,
            timestamp=self._clock.now_ms(),
            counter=version.counter + 1,
        )
        assert self.data_version != version, "a version never comes back"
        self.changed.set()

    def adopt_version(self, version: DataVersion) -> None:
        """Record that the table is a copy of another broker's, at this version."""
        self.data_version = version
        self.changed.set()

    @property
    def is_dirty(self) -> bool:
        """Whether the next save writes."""
        return self.changed.is_set()

    def snapshot(self) -> list[bytes]:
        """Return the text to save in pieces; from then on the table is clean."""
        self.changed = trio.Event()
        pieces = [fastjson.dumps_pretty(self._content())]
        for name, members in self._large.items():
            pieces[:1] = members.in_file.fill(pieces[0], name)
        return pieces

    async def fill_document(self, document: Body) -> bytes:
        """Return a document of a request or an answer, with its large objects."""
        pieces = [document.encode()]
        for name, members in self._large.items():
            await encode_in_turns(members.in_request)
            pieces[:1] = members.in_request.fill(pieces[0], name)
        return await join_text(pieces)

    async def save(self) -> float:
        """Return when the file has the current table.

        Callers during a write share the next one. OSError if it cannot be written; the
        table stays dirty then. Changed members are encoded in turns first; a worker
        thread joins the text and writes it. Returns the seconds for which the
        collection of the pieces blocked all other tasks.
        """
        async with self._saving:
            if not self.is_dirty:
                return 0.0
            await self._encode()
            began_s = time.perf_counter()
            pieces = self.snapshot()
            pieces_s = time.perf_counter() - began_s
            try:
                with trio.CancelScope(shield=True):
                    await in_thread(self.write, pieces)
            except OSError:
                self.changed.set()
                raise
        return pieces_s

    async def _encode(self) -> None:
        """Encode the members that changed, for the file; other tasks run meanwhile."""
        for members in self._large.values():
            await encode_in_turns(members.in_file)

    async def wait_saved(self, answer: T) -> T:
        """Return the answer to a change when the change is saved.

        RequestRejected if it cannot be written.
        """
        try:
            await self.save()
        except OSError as error:
            logger.error("%s cannot be saved: %s", self.file_name, error)
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR,
                f"changed in memory, but not saved: {error.strerror}; correct this "
                "error and send the request again",
            ) from error
        return answer

    def write(self, pieces: Iterable[bytes]) -> None:
        """Save a text; it blocks: call it from a worker thread."""
        self._file.write(pieces, self._clock.now_ms())
