"""ReplacedOffsets: the offsets that resets have replaced, to restore them later.

File: `config/rmqReplacedOffsets.json`, saved before the reset; one object per reset:

    {"resets": [{"key": "…", "atMs": n, "user": "…", "group": "…", "topic": "…",
                 "offsets": {"0": n}}]}

Belongs to the console.  A broker without a console does not read this file.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rmq.config.json_table import JsonTable
from rmq.core.clock import Clock

MAX_RESETS: Final = 100
"""Maximum number of resets; above it the oldest is removed.

A reset has an offset for each queue of a topic.
"""


class Reset(msgspec.Struct, frozen=True, rename="camel"):
    """One reset: the offsets before it, by queue id."""

    key: str
    at_ms: int
    user: str
    group: str
    topic: str
    offsets: dict[int, int]


class ReplacedOffsets(JsonTable):
    """The last resets, the oldest first."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        super().__init__(folder / "rmqReplacedOffsets.json", clock)
        self._resets: dict[str, Reset] = {}

    def _read(self, value: dict[str, Any]) -> None:
        found = msgspec.convert(value.get("resets") or [], list[Reset], strict=False)
        self._resets = {each.key: each for each in found[-MAX_RESETS:]}

    def _content(self) -> object:
        return {"resets": [msgspec.to_builtins(r) for r in self._resets.values()]}

    async def add(
        self, user: str, group: str, topic: str, offsets: Mapping[int, int]
    ) -> str:
        """Save the offsets that a reset will replace; return their key."""
        now_ms = self._clock.now_ms()
        key = secrets.token_urlsafe(12)
        self._resets[key] = Reset(key, now_ms, user, group, topic, dict(offsets))
        if len(self._resets) > MAX_RESETS:
            del self._resets[next(iter(self._resets))]
        self.touch()
        return await self.wait_saved(key)

    async def drop(self, key: str) -> None:
        """Forget a reset that was refused."""
        self._resets.pop(key, None)
        self.touch()
        await self.wait_saved(None)

    def get(self, key: str) -> Reset | None:
        """Return a reset; None if it is forgotten."""
        return self._resets.get(key)

    def resets_of(self, group: str) -> list[dict[str, Any]]:
        """Return the resets of a group, the newest first, without offsets."""
        return [
            {"key": each.key, "at": each.at_ms, "user": each.user,
             "topic": each.topic, "queues": len(each.offsets)}
            for each in reversed(self._resets.values())
            if each.group == group
        ]  # fmt: skip
