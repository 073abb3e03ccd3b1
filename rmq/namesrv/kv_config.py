"""KVConfig: names and values by namespace, kept in `kvConfig.json`.

Layout: `{"configTable": {namespace: {key: value}}}`.
Crash contract: that of `rmq/files.py`; the one before is `.bak`.
Order configuration of topics lives here, namespace ORDER_TOPIC_CONFIG.
"""

import logging
from functools import partial
from pathlib import Path

import trio

from rmq.errors import RemoteProtocolError, RequestRejected, StoreError
from rmq.files import replace_file
from rmq.protocol import fastjson
from rmq.protocol.codes import ResponseCode

logger = logging.getLogger(__name__)

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
MAX_ENTRIES = 100_000
MAX_NAME_SIZE = 255
"""Characters of a namespace or a key, as of a topic: topics are the usual keys."""

MAX_VALUE_SIZE = 64 * 1024
MAX_TABLE_SIZE = 16 * 1024 * 1024
"""Characters of the whole table: every change writes all of it."""


class KVConfig:
    """Known in Java as `KVConfigManager`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._table: dict[str, dict[str, str]] = {}
        self._count = 0
        self._size = 0
        self._is_dirty = False
        self._writing = trio.Lock()

    def load(self) -> None:
        """Read the file, or the one before it; an absent one is empty."""
        backup = self._path.with_name(self._path.name + ".bak")
        problem = self._read(self._path)
        if problem is None or self._read(backup) is not None:
            if problem:
                raise StoreError(f"{self._path}: {problem}; mend or remove it")
            return
        bad = self._path.with_name(self._path.name + ".bad")
        if self._path.exists():
            self._path.rename(bad)
            logger.warning("%s: %s; it was moved to %s", self._path, problem, bad.name)

    def _read(self, path: Path) -> str | None:
        """Take over a file; why not, if it is not there or cannot be read."""
        try:
            value = fastjson.loads(path.read_bytes())
            table = value.get("configTable") or {}
            self._table = {
                str(name): {str(k): str(v) for k, v in entries.items()}
                for name, entries in table.items()
            }
            self._count = sum(map(len, self._table.values()))
            self._size = sum(
                _size(key, text)
                for entries in self._table.values()
                for key, text in entries.items()
            )
        except FileNotFoundError:
            return "" if path == self._path else "there is no backup"
        except (RemoteProtocolError, AttributeError) as error:
            return f"it cannot be read: {error}"
        return None

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value."""
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str]:
        """Return all entries of a namespace."""
        return dict(self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Add or replace a value."""
        if not namespace or not key:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        self._check_room(namespace, key, value)
        self._remove(namespace, key)
        self._table.setdefault(namespace, {})[key] = value
        self._count += 1
        self._size += _size(key, value)
        self._is_dirty = True

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
        self._remove(namespace, key)
        self._is_dirty = True
        if not self._table.get(namespace):
            self._table.pop(namespace, None)

    def _remove(self, namespace: str, key: str) -> None:
        before = self._table.get(namespace, {}).pop(key, None)
        if before is not None:
            self._count -= 1
            self._size -= _size(key, before)
        assert self._count >= 0, namespace

    async def save(self) -> None:
        """Return when every change so far is in the file; one write may serve many."""
        async with self._writing:
            if self._is_dirty:
                self._is_dirty = False
                text = fastjson.dumps_pretty({"configTable": self._table})
                await trio.to_thread.run_sync(
                    partial(replace_file, self._path, text, backup=True)
                )


def _size(key: str, value: str) -> int:
    return len(key) + len(value)


def _refused(reason: str) -> RequestRejected:
    return RequestRejected(ResponseCode.SYSTEM_ERROR, reason)
