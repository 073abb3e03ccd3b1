"""AskedSet: the change of its set that a master asked for last, in a file.

A master that dies, and comes back in the same epoch, does not know whether a request of
its life before is still on its way: it counts until the controller answers, so it must
not be forgotten.
File `setAsked`: epoch, number of the set that is replaced, and the ids, with blanks.
Crash contract: it is durable before the request leaves.
"""

from pathlib import Path

from rmq.core.files import replace_file


class AskedSet:
    """The file of one broker."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, epoch: int, number: int, wanted: frozenset[int]) -> None:
        """Keep a request that is going to be sent; durable at the return."""
        texts = map(str, (epoch, number, *sorted(wanted)))
        replace_file(self._path, " ".join(texts).encode())

    def find(self, epoch: int, number: int) -> frozenset[int] | None:
        """Return what was asked for in this epoch, in place of that set."""
        try:
            known = [int(text) for text in self._path.read_bytes().split()]
        except (FileNotFoundError, ValueError):
            return None
        return frozenset(known[2:]) if known[:2] == [epoch, number] else None
