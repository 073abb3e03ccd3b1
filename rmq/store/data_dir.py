"""DataDirectory: the paths of a store, its owner, and whether it was shut down cleanly.

`lock`: POSIX record lock on byte 0, length 1; a Java broker takes the same lock.
`abort`: created first and removed last.  If it exists at start, the last run did not
shut down cleanly. The text of the file is the process id, and on a second line the
generation of the run's ring. A Java broker that uses the directory writes no second
line. `ring`: see `log/tail_ring.pyx`; it belongs to the run whose generation it has.
Crash contract: after a kill `abort` exists and the lock is free; the generation is
durable before the first append of its run.
"""

import fcntl
import os
import struct
from contextlib import suppress
from pathlib import Path

from rmq.core.errors import StoreError
from rmq.core.files import replace_file, sync_directory
from rmq.store.config import StoreConfig
from rmq.store.foreign import Foreign, find_foreign
from rmq.store.log_folders import LogFolders

_LOCK_TEXT = b"lock"
_FLOCK = struct.Struct("hhqqi4x")
"""`struct flock`: type, whence, start, length, process id."""
_open_roots: set[str] = set()
"""Roots open in this process: a POSIX lock does not exclude the process that has it."""


class DataDirectory:
    """Paths below one root, its lock and its abort marker."""

    def __init__(self, config: StoreConfig) -> None:
        self.root = config.root_path
        self.log_folders = LogFolders(config.log_folders(), config.read_only_folders)
        self.commit_log = self.log_folders.all[0]
        self.consume_queue = self.root / "consumequeue"
        self.index = self.root / "index"
        self.config = self.root / "config"
        self.checkpoint = self.root / "checkpoint"
        self.cut = self.root / "cut"
        self.ring = self.root / "ring"
        self.foreign = Foreign()
        self._is_strict = config.strict_store
        self.abort = AbortMarker(self.root / "abort")
        self._lock_path = self.root / "lock"
        self._lock = -1

    def acquire(self) -> None:
        """Create the directories and take the lock, before any other change.

        It first refuses a directory that this store cannot serve.
        """
        self.foreign = find_foreign(self.root)
        refusals = self.foreign.refusals
        if self._is_strict:
            refusals = refusals + self.foreign.start_notes
        if refusals:
            raise StoreError("; ".join(refusals))
        try:
            self.log_folders.create()
            for folder in (self.consume_queue, self.config):
                folder.mkdir(parents=True, exist_ok=True)
            key = os.path.realpath(self.root)
            if key in _open_roots:
                raise StoreError(f"{self.root} is open already in this process")
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(self._lock_path, flags, 0o644)
        except OSError as error:
            raise StoreError(
                f"cannot use the data directory {self.root}: {error.strerror} "
                f"({error.filename})"
            ) from error
        try:
            fcntl.lockf(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except OSError:
            os.close(self._lock)
            self._lock = -1
            raise StoreError(
                f"another broker uses {self.root}: stop it, or set storePathRootDir"
            ) from None
        with suppress(OSError):  # a full disk: the lock needs no text
            os.pwrite(self._lock, _LOCK_TEXT, 0)
        _open_roots.add(key)

    def has_tag_addresses(self, topic: str) -> bool:
        """Return whether tags codes of a topic may be addresses in Java's ext files."""
        return (self.root / "consumequeue_ext" / topic).is_dir()

    def release(self) -> None:
        """Release the lock; the file stays."""
        if self._lock < 0:
            return
        os.close(self._lock)
        self._lock = -1
        _open_roots.discard(os.path.realpath(self.root))


def is_locked(root: Path) -> bool:
    """Return whether a broker uses the directory; the lock is not changed.

    A process that holds a POSIX lock loses it by closing any descriptor of the file.
    So this process does not open the file if it is the holder.
    """
    if os.path.realpath(root) in _open_roots:
        return True
    try:
        descriptor = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, asked)
    finally:
        os.close(descriptor)
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


class AbortMarker:
    """The file that exists after a crash, and not after a clean shutdown."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def is_set(self) -> bool:
        """True if the last run did not shut down cleanly."""
        return self._path.exists()

    @property
    def ring_generation(self) -> int:
        """The generation of the run that set the marker; 0 if that run had no ring."""
        text = self._path.read_text(errors="replace")
        _, _, generation = text.strip().partition("\n")
        return int(generation) if generation.isdecimal() else 0

    def set(self, generation: int = 0) -> None:
        """Create the file; it is durable before the store changes.

        On a full disk the file may be empty; with a generation that is an OSError.
        """
        text = str(os.getpid())
        if generation:
            replace_file(self._path, f"{text}\n{generation}\n".encode())
            return
        try:
            self._path.write_bytes(b"")
            sync_directory(self._path.parent)
        except OSError as error:
            raise StoreError(
                f"cannot create {self._path}: {error.strerror}; make room on its disk"
            ) from error
        with suppress(OSError):
            self._path.write_text(text)

    def clear(self) -> None:
        """Remove the file: everything is durable, and all queues have their entries."""
        self._path.unlink(missing_ok=True)
        sync_directory(self._path.parent)
