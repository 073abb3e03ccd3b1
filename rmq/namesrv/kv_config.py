"""KVConfig: keys and values by namespace, in the file `kvConfig.json`.

Layout: `{"configTable": {namespace: {key: value}}}`.
The namespace ORDER_TOPIC_CONFIG holds the order configuration of topics.
Limits: a change is answered after a write of the whole table. Many changes share a
write, only changed namespaces are encoded, and after a write that took 1 s the next
write waits for 4 s.
"""

import time
from bisect import insort
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from rmq.config.json_table import JsonTable, encode_in_turns
from rmq.core.clock import Clock
from rmq.core.errors import RequestRejected
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode
from rmq.protocol.encoded_members import EncodedMembers

T = TypeVar("T")

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
MAX_ENTRIES = 100_000
MAX_NAMESPACES = 1_000
MAX_WAITING: Final = 64
"""Maximum number of changes that wait for a save: they share the next write."""

MAX_NAME_SIZE = 255
"""Maximum characters of a namespace or a key: the limit of topics, which are the usual
keys.
"""

MAX_VALUE_SIZE = 64 * 1024
MAX_TABLE_SIZE = 16 * 1024 * 1024
"""Maximum characters of the whole table: every change writes all of it."""

_LINE = b"\n\t\t"
"""Start of a namespace in the file; its entries have one tab more."""

PAUSE_FACTOR = 4
"""Pause after a write, in multiples of its duration: writes use at most a fifth of a
core.
"""


class _Namespace:
    """Entries, and their text in the file."""

    __slots__ = ("entries", "texts", "written")

    def __init__(self, name: str) -> None:
        self.entries: dict[str, str] = {}
        self.written = fastjson.dump_json(name)
        self.texts: EncodedMembers[str] = EncodedMembers(line=_LINE + b"\t")

    def put(self, key: str, value: str) -> None:
        self.entries[key] = value
        self.texts.put(key, value)

    def member_pieces(self) -> list[bytes]:
        """Return the namespace as a member of the table, with a comma before it."""
        first, *others = self.texts.joined_texts()
        return [b",", _LINE, self.written, b":{", first[1:], *others, _LINE, b"}"]


class KVConfig(JsonTable):
    """Known in Java as `KVConfigManager`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._table: dict[str, _Namespace] = {}
        self._sorted: list[_Namespace] = []
        """The namespaces in the order of the file."""

        self._count = 0
        self._size = 0
        self._waiting = 0
        self._rest_until_s = 0.0
        self._pausing = trio.Lock()

    def _read(self, value: dict[str, Any]) -> None:
        table = {
            str(name): {str(key): str(text) for key, text in entries.items()}
            for name, entries in (value.get("configTable") or {}).items()
        }
        self._table, self._sorted, self._count, self._size = {}, [], 0, 0
        for name, entries in table.items():
            for key, text in entries.items():
                self._add(name, key, text)

    def _content(self) -> object:
        table = {name: namespace.entries for name, namespace in self._table.items()}
        return {"configTable": table}

    def _add(self, name: str, key: str, value: str) -> None:
        namespace = self._table.get(name)
        if namespace is None:
            namespace = self._table[name] = _Namespace(name)
            insort(self._sorted, namespace, key=attrgetter("written"))
        namespace.put(key, value)
        self._count += 1
        self._size += _size(key, value)

    def snapshot(self) -> list[bytes]:
        """Return the text to save in pieces; from then on the table is clean."""
        self.changed = trio.Event()
        pieces = [b'{\n\t"configTable":{']
        for namespace in self._sorted:
            pieces += namespace.member_pieces()
        if not self._sorted:
            return [*pieces, b"}\n}"]
        pieces[1] = b""  # the first comma
        return [*pieces, b"\n\t}\n}"]

    async def _encode(self) -> None:
        for namespace in list(self._sorted):
            await encode_in_turns(namespace.texts)

    def get(self, name: str, key: str) -> str | None:
        """Return a value."""
        namespace = self._table.get(name)
        return None if namespace is None else namespace.entries.get(key)

    def entries_of(self, name: str) -> dict[str, str]:
        """Return all entries of a namespace."""
        namespace = self._table.get(name)
        return {} if namespace is None else dict(namespace.entries)

    def put(self, name: str, key: str, value: str) -> None:
        """Add or replace a value."""
        if not name or not key:
            raise _entry_rejection("namespace or key is null")
        self._check_waiting()
        self._check_room(name, key, value)
        before = self.get(name, key)
        if before is not None:
            self._count -= 1
            self._size -= _size(key, before)
        self._add(name, key, value)
        self.changed.set()

    def _check_waiting(self) -> None:
        if self._waiting >= MAX_WAITING:
            raise RequestRejected(
                ResponseCode.SYSTEM_BUSY,
                f"{MAX_WAITING} changes wait until {self.file_name} is saved, try "
                "again later",
            )

    def _check_room(self, namespace: str, key: str, value: str) -> None:
        if len(namespace) > MAX_NAME_SIZE or len(key) > MAX_NAME_SIZE:
            raise _entry_rejection(
                f"namespace and key have at most {MAX_NAME_SIZE} characters"
            )
        if len(value) > MAX_VALUE_SIZE:
            raise _entry_rejection(f"a value has at most {MAX_VALUE_SIZE} characters")
        before = self.get(namespace, key)
        count = self._count - (before is not None)
        size = self._size - (0 if before is None else _size(key, before))
        if count >= MAX_ENTRIES or size + _size(key, value) > MAX_TABLE_SIZE:
            raise _entry_rejection(
                f"the table has at most {MAX_ENTRIES} entries "
                f"and {MAX_TABLE_SIZE} characters"
            )
        if namespace not in self._table and len(self._table) >= MAX_NAMESPACES:
            raise _entry_rejection(f"the table has at most {MAX_NAMESPACES} namespaces")

    def delete(self, name: str, key: str) -> None:
        """Remove a value."""
        self._check_waiting()
        namespace = self._table.get(name)
        if namespace is None or key not in namespace.entries:
            return
        self._count -= 1
        self._size -= _size(key, namespace.entries.pop(key))
        assert self._count >= 0, name
        namespace.texts.remove(key)
        if not namespace.entries:
            del self._table[name]
            self._sorted.remove(namespace)
        self.changed.set()

    async def wait_saved(self, answer: T) -> T:
        """Return the answer to a change when the file is saved, see `JsonTable`."""
        self._waiting += 1
        try:
            return await super().wait_saved(answer)
        finally:
            self._waiting -= 1

    async def save(self) -> float:
        """Return when the file has the current table; many callers share a write.

        OSError if it cannot be written. Returns the seconds for which the collection of
        the pieces blocked all other tasks.
        """
        async with self._pausing:
            if not self.is_dirty:
                return 0.0
            await trio.sleep(max(0.0, self._rest_until_s - time.perf_counter()))
            began_s = time.perf_counter()
            blocked_s = await super().save()
            ended_s = time.perf_counter()
            self._rest_until_s = ended_s + (ended_s - began_s) * PAUSE_FACTOR
        return blocked_s


def _size(key: str, value: str) -> int:
    return len(key) + len(value)


def _entry_rejection(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)
