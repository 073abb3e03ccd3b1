"""FileEngine: one controller, whose groups are in a file of its own machine.

For one node, tests and the first minutes. The file is `groups.json`: the name of each
group and the group. It is replaced as a whole, durably, before a request is answered.
A lock on the folder keeps a second process away.
"""

import fcntl
import math
import os
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


class FileEngine:
    """An engine for which this process is the only controller."""

    warning = (
        "rmq.controllerEngine=file is not highly available: without this process no "
        "group gets a new master; use etcd for high availability"
    )

    def __init__(self, folder: Path) -> None:
        """Lock the folder and read the file.

        ConfigError if another process has the folder, EngineAway if the file is bad.
        """
        self._path = folder / "groups.json"
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
        self._read()

    async def load(self) -> View:
        """Read the file again."""
        await in_thread(self._read)
        return msgspec.structs.replace(self._view, groups=dict(self._view.groups))

    def _read(self) -> None:
        try:
            data = self._path.read_bytes()
            self._content = msgspec.json.decode(data, type=_Content)
        except FileNotFoundError:
            self._content = {}
        except (OSError, msgspec.DecodeError) as error:
            raise EngineAway(f"{self._path} cannot be read: {error}") from error
        groups = {
            name: Stored(decode_group(name, bytes(raw)), 1)
            for name, raw in self._content.items()
        }
        self._view.groups = groups

    async def swap(
        self, name: str, group: Group | None, revision: int, term: Term
    ) -> int | None:
        """Write the file with the changed group."""
        known = self._view.groups.get(name)
        if revision != (known.revision if known else 0):
            return None
        content = {key: raw for key, raw in self._content.items() if key != name}
        if group is not None:
            content[name] = msgspec.Raw(encode_group(group))
        data = msgspec.json.format(msgspec.json.encode(content))
        try:
            await in_thread(replace_file, self._path, data)
        except OSError as error:
            raise EngineAway(f"{self._path} cannot be written: {error}") from error
        self._content = content
        if group is None:
            self._view.groups.pop(name, None)
        else:
            self._view.groups[name] = Stored(group, revision + 1)
        return revision + 1

    async def watch(self) -> AsyncIterator[View]:
        """Yield the state once: no other process changes it."""
        yield self._view
        await trio.sleep_forever()

    async def campaign(
        self, address: str, on_term: Callable[[Term | None], None]
    ) -> None:
        """Lead from now on, and leave the folder to others at the end."""
        self._view.leader, self._view.controllers = address, (address,)
        try:
            on_term(Term(1, math.inf))
            await trio.sleep_forever()
        finally:
            os.close(self._lock)
