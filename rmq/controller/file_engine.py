"""FileEngine: one controller, which stores its groups in two files on its machine.

For one node, tests and the first minutes. Each file has all groups:
`{"format":2,"generation":N,"crc32":"8 digits","groups":{name: group}}`. The CRC covers
the generation and the text of `groups`. Each change writes `groups.2.json`, then
`groups.json`, durably, before a request is answered; N grows by one. A lock on the
folder prevents a second process from using it.

The state is certain if both files are valid and the numbers N differ by at most one. In
other cases the newer valid file is used, and each of its groups is *doubtful*, because
the other file may have been newer. `groups.py` then elects no master before the members
have sent heartbeats. The earlier form, one file without a CRC, is read once.
"""

import fcntl
import math
import os
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import trio

from rmq.controller.engine import Stored, Term, View, decode_group, encode_group
from rmq.controller.groups import Group
from rmq.core.errors import ConfigError, EngineAway
from rmq.core.files import replace_file
from rmq.core.threads import in_thread

_Content = dict[str, msgspec.Raw]
_FORMAT = 2


class _Copy(msgspec.Struct):
    """One of the two files."""

    format: int
    generation: int
    crc32: str
    groups: msgspec.Raw


class FileEngine:
    """An engine for which this process is the only controller."""

    warning = (
        "rmq.controllerEngine=file is not highly available: without this process no "
        "group gets a new master; use etcd for high availability"
    )

    def __init__(self, folder: Path) -> None:
        """Lock the folder and read the files.

        ConfigError if another process uses the folder, EngineAway if no file is valid.
        """
        self._paths = folder / "groups.json", folder / "groups.2.json"
        self._generation = 0
        self._content: _Content = {}
        self._view = View()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            self._lock = os.open(folder / "lock", flags, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"controllerStorePath={folder}: {error.strerror}; does another "
                "controller run there?"
            ) from error
        self._view.doubt = self._read()
        if self._view.doubt:
            self._view.doubtful = set(self._view.groups)

    async def load(self) -> View:
        """Read the files again."""
        await in_thread(self._read)
        return msgspec.structs.replace(self._view, groups=dict(self._view.groups))

    def _read(self) -> str:
        """Read the newest valid file; return why its state may not be the newest."""
        found: list[tuple[int, _Content]] = []
        problems: list[str] = []
        for path in self._paths:
            try:
                found.append(_decode(path.read_bytes()))
            except FileNotFoundError:
                problems.append(f"{path} is missing")
            except (OSError, ValueError) as error:
                problems.append(f"{path} cannot be read: {error}")
        is_new = not any(path.exists() for path in self._paths)
        if not found and not is_new:
            raise EngineAway("; ".join(problems))
        self._generation, self._content = max(
            found, key=lambda each: each[0], default=(0, {})
        )
        self._view.groups = {
            name: Stored(decode_group(name, bytes(raw)), 1)
            for name, raw in self._content.items()
        }
        if is_new or not self._generation:  # 0: the earlier form
            return ""
        if len(found) == len(self._paths) and abs(found[0][0] - found[1][0]) > 1:
            problems.append(
                f"{self._paths[0]} is of generation {found[0][0]}, {self._paths[1]} of "
                f"{found[1][0]}"
            )
        return "; ".join(problems)

    async def swap(
        self, name: str, group: Group | None, revision: int, term: Term
    ) -> int | None:
        """Write the files with the changed group."""
        known = self._view.groups.get(name)
        if revision != (known.revision if known else 0):
            return None
        content = {key: raw for key, raw in self._content.items() if key != name}
        if group is not None:
            content[name] = msgspec.Raw(encode_group(group))
        data = _encode(self._generation + 1, content)
        try:
            for path in reversed(self._paths):
                await in_thread(replace_file, path, data)
        except OSError as error:
            raise EngineAway(f"{self._paths[0]} cannot be written: {error}") from error
        self._generation += 1
        self._content = content
        if group is None:
            self._view.groups.pop(name, None)
        else:
            self._view.groups[name] = Stored(group, revision + 1)
        if known is None or group is None or group.term != known.group.term:
            self._view.doubtful.discard(name)
        return revision + 1

    async def watch(self) -> AsyncIterator[View]:
        """Yield the state once: no other process changes it."""
        yield self._view
        await trio.sleep_forever()

    async def campaign(
        self, address: str, on_term: Callable[[Term | None], None]
    ) -> None:
        """Lead from now on, and release the folder at the end."""
        self._view.leader, self._view.controllers = address, (address,)
        try:
            on_term(Term(1, math.inf))
            await trio.sleep_forever()
        finally:
            os.close(self._lock)


def _encode(generation: int, content: _Content) -> bytes:
    groups = msgspec.json.format(msgspec.json.encode(content))
    head = b'{"format":%d,"generation":%d,"crc32":"%08x","groups":'
    return head % (_FORMAT, generation, _crc_of(generation, groups)) + groups + b"}\n"


def _decode(data: bytes) -> tuple[int, _Content]:
    """Return generation and groups; ValueError if they are damaged.

    The earlier form has generation 0.
    """
    raw = msgspec.json.decode(data, type=_Content)
    if "generation" not in raw:
        return 0, raw
    copy = msgspec.json.decode(data, type=_Copy)
    groups = bytes(copy.groups)
    if (
        copy.format != _FORMAT
        or copy.crc32 != f"{_crc_of(copy.generation, groups):08x}"
    ):
        raise ValueError("its checksum is wrong")
    return copy.generation, msgspec.json.decode(groups, type=_Content)


def _crc_of(generation: int, groups: bytes) -> int:
    return zlib.crc32(groups, zlib.crc32(b"%d\n" % generation))
