"""Model of a topic that stores a key once: what is stored, and what is left out."""


class KeyTable:
    """At most `capacity` keys, the oldest goes first; slow and obvious."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.entries: list[tuple[bytes, bytes, int, int]] = []

    def add(self, topic: bytes, key: bytes, offset: int, store_ms: int) -> None:
        if len(self.entries) == self.capacity:
            del self.entries[0]
        self.entries.append((topic, key, offset, store_ms))

    def find(self, topic: bytes, key: bytes, since_ms: int) -> int:
        for each_topic, each_key, offset, store_ms in reversed(self.entries):
            if (each_topic, each_key) == (topic, key):
                return offset if store_ms >= since_ms else -1
        return -1


class StoredKeys:
    """Which sends of one topic are stored, by the times of their keys."""

    def __init__(self, window_ms: int) -> None:
        self.window_ms = window_ms
        self.stored: dict[str, int] = {}

    def must_store(self, key: str, now_ms: int) -> bool:
        """Return whether a send of a key at a time is stored, and record it."""
        if key in self.stored and self.stored[key] >= now_ms - self.window_ms:
            return False
        self.stored[key] = now_ms
        return True

    def forget(self, key: str) -> None:
        """Forget the last send of a key: its message was cut off the log."""
        self.stored.pop(key, None)
