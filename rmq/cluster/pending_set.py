"""PendingSyncStateSet: the change of its set that a master requested last, in a file.

A master that restarts within its epoch cannot know whether a request that it sent
before the crash will still arrive. The request is valid until the controller answers,
so the broker must not lose it. File `setAsked`: epoch, number of the set to replace,
and the ids, separated by blanks. Crash contract: it is durable before the request
leaves.
"""

from pathlib import Path

from rmq.core.files import replace_file


class PendingSyncStateSet:
    """The file of one broker."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def save(self, epoch: int, number: int, wanted: frozenset[int]) -> None:
        """Save a request before it is sent; durable at the return."""
        texts = map(str, (epoch, number, *sorted(wanted)))
        replace_file(self._path, " ".join(texts).encode())

    def find(self, epoch: int, number: int) -> frozenset[int] | None:
        """Return the set that was requested in this epoch to replace set `number`."""
        try:
            known = [int(text) for text in self._path.read_bytes().split()]
        except (FileNotFoundError, ValueError):
            return None
        return frozenset(known[2:]) if known[:2] == [epoch, number] else None
