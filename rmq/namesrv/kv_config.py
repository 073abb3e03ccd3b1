"""KVConfig: keys and values by namespace, in the file `kvConfig.json`.

Layout: `{"configTable": {namespace: {key: value}}}`.
The namespace ORDER_TOPIC_CONFIG holds the order configuration of topics.
Limits: a change is answered when the file holds it, and writes the whole table.  Many
changes share a write, only what changed is encoded, and after a write that took 1 s the
next one waits for 4 s.
"""

import time
from pathlib import Path
from typing import Any

import trio

from rmq.clock import Clock
from rmq.errors import RequestRejected
from rmq.json_table import JsonTable, encode_in_turns
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode
from rmq.protocol.encoded_members import EncodedMembers

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
MAX_ENTRIES = 100_000
MAX_NAME_SIZE = 255
"""Characters of a namespace or a key, as of a topic: topics are the usual keys."""

MAX_VALUE_SIZE = 64 * 1024
MAX_TABLE_SIZE = 16 * 1024 * 1024
"""Characters of the whole table: every change writes all of it."""

_LINE = b"\n\t\t"
"""Starts a namespace in the file; its entries have one tab more."""

PAUSE_FACTOR = 4
"""Pause after a write, in multiples of its time: a fifth of a core is the most."""


class KVConfig(JsonTable):
    """Known in Java as `KVConfigManager`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        super().__init__(path, clock)
        self._table: dict[str, dict[str, str]] = {}
        self._texts: dict[str, EncodedMembers[str]] = {}
        self._count = 0
        self._size = 0
        self._rest_until_s = 0.0
        self._pausing = trio.Lock()

    def _read(self, value: dict[str, Any]) -> None:
        self._table = {
            str(name): {str(key): str(text) for key, text in entries.items()}
            for name, entries in (value.get("configTable") or {}).items()
        }
        self._texts = {}
        for name, entries in self._table.items():
            for key, text in entries.items():
                self._encoded(name).put(key, text)
        self._count = sum(map(len, self._table.values()))
        self._size = sum(
            _size(key, text)
            for entries in self._table.values()
            for key, text in entries.items()
        )

    def _content(self) -> object:
        return {"configTable": self._table}

    def _encoded(self, namespace: str) -> EncodedMembers[str]:
        """Return the texts of a namespace's entries, as the file has them."""
        if namespace not in self._texts:
            self._texts[namespace] = EncodedMembers(line=_LINE + b"\t")
        return self._texts[namespace]

    def snapshot(self) -> list[bytes]:
        """Return the text to save in pieces; from then on the table is clean."""
        self.changed = trio.Event()
        pieces, comma = [b'{\n\t"configTable":{'], b""
        for name, members in sorted(self._texts.items(), key=_written):
            first, *others = members.texts()
            pieces += [comma + _LINE + fastjson.dumps(name) + b":{", first[1:]]
            pieces += [*others, _LINE + b"}"]
            comma = b","
        return [*pieces, b"\n\t}\n}" if comma else b"}\n}"]

    async def _encode(self) -> None:
        for members in list(self._texts.values()):
            await encode_in_turns(members)

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return all entries of a namespace."""
        return dict(self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Add or replace a value."""
        if not namespace or not key:
            raise _refused("namespace or key is null")
        self._check_room(namespace, key, value)
        self._remove(namespace, key)
        self._table.setdefault(namespace, {})[key] = value
        self._encoded(namespace).put(key, value)
        self._count += 1
        self._size += _size(key, value)
        self.changed.set()

    def _check_room(self, namespace: str, key: str, value: str) -> None:
        if len(namespace) > MAX_NAME_SIZE or len(key) > MAX_NAME_SIZE:
            raise _refused(f"namespace and key have at most {MAX_NAME_SIZE} characters")
        if len(value) > MAX_VALUE_SIZE:
            raise _refused(f"a value has at most {MAX_VALUE_SIZE} characters")
        before = self.get(namespace, key)
        count = self._count - (before is not None)
        size = self._size - (0 if before is None else _size(key, before))
        if count >= MAX_ENTRIES or size + _size(key, value) > MAX_TABLE_SIZE:
            raise _refused(
                f"the table has at most {MAX_ENTRIES} entries "
                f"and {MAX_TABLE_SIZE} characters"
            )

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value."""
        if not self._remove(namespace, key):
            return
        self._encoded(namespace).remove(key)
        if not self._table[namespace]:
            del self._table[namespace], self._texts[namespace]
        self.changed.set()

    def _remove(self, namespace: str, key: str) -> bool:
        before = self._table.get(namespace, {}).pop(key, None)
        if before is None:
            return False
        self._count -= 1
        self._size -= _size(key, before)
        assert self._count >= 0, namespace
        return True

    async def save(self) -> float:
        """Return when the file holds the present table; many callers share a write.

        OSError if it cannot be written.  Returns for how many seconds the collection of
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


def _written(entry: tuple[str, object]) -> bytes:
    return fastjson.dumps(entry[0])


def _size(key: str, value: str) -> int:
    return len(key) + len(value)


def _refused(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)
