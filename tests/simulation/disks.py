"""The disks of simulated machines: what is on them after a kill, and after a power cut.

What a node has written is in its files at once, as in a page cache, and a kill leaves
it.  After a power cut each page of a file is as the node wrote it last, or as the last
sync left it, or torn between both at a sector; a file that was never synced may also be
empty, or absent if it is the newest of its folder.  Names come to the disk at once, as
with a journal.  Pages of a ring are never synced: each is there or lost.
"""

import ctypes
import os
import random
import shutil
from pathlib import Path

from tests.crash.power_cut import PAGE, torn


class Disks:
    """What the last sync of each file left."""

    def __init__(self, library: ctypes.CDLL, root: Path) -> None:
        self._root = str(root)
        self._synced: dict[str, bytes] = {}
        self._listener = ctypes.CFUNCTYPE(None, ctypes.c_int)(self._note)
        library.outside_listen(self._listener)
        self._replace, self._link = os.replace, os.link
        os.replace = os.rename = self._rename
        os.link = self._make_link

    def _note(self, descriptor: int) -> None:
        """A file is synced, or the disk of the file whose complement this is."""
        if descriptor < 0:
            self._note_disk(os.readlink(f"/proc/self/fd/{~descriptor}"))
            return
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.startswith(self._root) and os.path.isfile(path):
            with open(path, "rb") as file:
                self._synced[path] = file.read()

    def _note_disk(self, path: str) -> None:
        machine, life, *_ = Path(path).relative_to(self._root).parts
        for folder, _, names in os.walk(f"{self._root}/{machine}/{life}"):
            for name in names:
                file = Path(folder, name)
                self._synced[str(file)] = file.read_bytes()

    def _rename(self, source, target, **others) -> None:
        self._replace(source, target, **others)
        synced = self._synced.pop(str(source), None)
        if synced is not None:
            self._synced[str(target)] = synced

    def _make_link(self, source, target, **others) -> None:
        self._link(source, target, **others)
        if str(source) in self._synced:
            self._synced[str(target)] = self._synced[str(source)]

    def kill(self, folder: Path, target: Path) -> None:
        """Make the folder that a start after a kill finds."""
        self._copy(folder, target, lambda _path, data: data)

    def cut_power(self, folder: Path, target: Path, chance: random.Random) -> None:
        """Make the folder that a start after a power cut finds."""
        likelihood = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        newest = {
            max(paths) for path, _, names in os.walk(folder)
            if (paths := [os.path.join(path, name) for name in names])
        }  # fmt: skip

        def left(path: str, data: bytes) -> bytes | None:
            synced = self._synced.get(path)
            if synced == data:
                return data
            if synced is None:
                if path in newest and chance.random() < 0.2:
                    return None
                if chance.random() < 0.2:
                    return b""
                synced = b""
            synced = synced[: len(data)].ljust(len(data), b"\0")
            return b"".join(
                data[at : at + PAGE]
                if data[at : at + PAGE] == synced[at : at + PAGE]
                else page(data[at : at + PAGE], synced[at : at + PAGE])
                for at in range(0, len(data), PAGE)
            )

        def page(data: bytes, synced: bytes) -> bytes:
            if chance.random() < likelihood:
                return data
            if chance.random() < 0.5:
                return synced
            return torn(synced.ljust(PAGE), data.ljust(PAGE), chance)[: len(data)]

        self._copy(folder, target, left)

    def _copy(self, folder: Path, target: Path, left) -> None:
        """Copy what is left, durably."""
        for path, folders, names in os.walk(folder):
            folders.sort()
            into = target / Path(path).relative_to(folder)
            into.mkdir(parents=True, exist_ok=True)
            for name in sorted(names):
                source = os.path.join(path, name)
                with open(source, "rb") as file:
                    data = left(source, file.read())
                if data is not None:
                    made = into / name
                    made.write_bytes(data)
                    self._synced[str(made)] = data

    def discard(self, folder: Path) -> None:
        """Remove what nobody uses any more."""
        for path in [each for each in self._synced if each.startswith(f"{folder}/")]:
            del self._synced[path]
        shutil.rmtree(folder, ignore_errors=True)
