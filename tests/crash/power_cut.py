"""Disks as a power cut may leave them, from the trace of a broker.

The trace (`io_trace.h`) tells each write and each sync of a mapped file, and of a queue
file, which is open for a moment only, in order.  At
any point of it the pages that were written since the last sync that ended are each on
the disk, or not: an image takes some at their new content and leaves the others at what
the last sync made durable.  A file that was never synced may also be empty or absent if
it is the last of its folder: names come to the disk in the order of their making, as
journals of file systems keep it.  A checkpoint is durable when its event is written; a
small file has its old or its new content while it is replaced.
The claim is one page that is stored with each batch: it is as of any store after its
last sync, and may be torn at a sector.
A direct write may also be torn at a sector.  Pages of the ring are never synced: each
is new, or as it was in the lap before, or lost.
Of an index file only the header is traced: images have it with lost entries.
"""

import bisect
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

HEAD = struct.Struct("<c3xiqq")
PAGE = 4096
SECTOR = 512
RING_HEAD = 64 * 1024


@dataclass
class TracedFile:
    """What is durable, what is newest, and which pages differ."""

    size: int
    durable: dict[int, bytes] = field(default_factory=dict)
    newest: dict[int, bytearray] = field(default_factory=dict)
    dirty: set[int] = field(default_factory=set)
    syncing: dict[int, bytes] | None = None
    written_end: int = 0
    is_synced: bool = False
    torn: set[int] = field(default_factory=set)
    """Pages of direct writes that were not confirmed."""
    earlier: dict[int, bytes] = field(default_factory=dict)
    """Pages of a ring as they were before the last lap over them began."""
    last_page: int = -1

    def page(self, number):
        if number not in self.newest:
            self.newest[number] = bytearray(PAGE)
        return self.newest[number]

    def write(self, position, data):
        self.written_end = max(self.written_end, position + len(data))
        while data:
            number, start = divmod(position, PAGE)
            part = data[: PAGE - start]
            if number != self.last_page and start == 0:
                self.earlier[number] = bytes(self.page(number))
            self.last_page = number
            self.page(number)[start : start + len(part)] = part
            self.dirty.add(number)
            position += len(part)
            data = data[len(part) :]

    def write_direct(self, position, data):
        """Write blocks, of which the last may be padded with zeros."""
        end = max(self.written_end, position + len(data.rstrip(b"\0")))
        self.write(position, data)
        self.written_end = end
        last = position + len(data)
        self.torn.update(range(position // PAGE, -(-last // PAGE)))

    def begin_sync(self):
        self.syncing = {number: bytes(self.page(number)) for number in self.dirty}
        self.dirty = set()

    def end_sync(self):
        self.durable |= self.syncing
        self.torn -= self.syncing.keys()
        self.syncing = None
        self.is_synced = True

    @property
    def open_pages(self):
        """Pages of which the disk may have either content."""
        return self.dirty | set(self.syncing or ())


class ClaimPage:
    """What is durable of the claim, and the slots that were stored after it."""

    def __init__(self) -> None:
        self._durable = bytes(PAGE)
        self._stores: list[tuple[int, bytes]] = []
        self._syncing = 0

    def store(self, position, slot):
        self._stores.append((position, slot))

    def begin_sync(self):
        self._syncing = len(self._stores)

    def end_sync(self):
        self._durable = self._page(self._syncing)
        del self._stores[: self._syncing]

    def choose(self, chance):
        """Return a page that may be found after the cut."""
        count = len(self._stores)
        newer = chance.choice([0, count, chance.randint(0, count)])
        older = chance.randint(0, newer)
        return torn(self._page(older), self._page(newer), chance)

    def _page(self, count):
        page = bytearray(self._durable)
        for position, slot in self._stores[:count]:
            page[position : position + len(slot)] = slot
        return bytes(page)


class Disk:
    """Replays a trace event by event."""

    def __init__(self, trace: Path, sizes: dict[str, int], abort: str = "1") -> None:
        self._abort = abort
        self._data = trace.read_bytes()
        self._sizes = sizes
        self._position = 0
        self._names: dict[int, str] = {}
        self.files: dict[str, TracedFile] = {}
        self.checkpoint = b""
        self.claim = ClaimPage()
        self.small: dict[str, bytes] = {}
        self.replacing: dict[str, bytes] = {}
        """New content of small files whose replacement has begun."""
        self.ends = []
        at = 0
        while at + HEAD.size <= len(self._data):
            kind, _, _, size = HEAD.unpack_from(self._data, at)
            at += HEAD.size + (size if kind in b"owdkrfc" else 0)
            if at <= len(self._data):
                self.ends.append(at)

    def replay_to(self, end):
        """Apply the events that end at or before byte `end` of the trace."""
        for event_end in self.ends[bisect.bisect_right(self.ends, self._position) :]:
            if event_end > end:
                return
            self._apply(self._position, event_end)
            self._position = event_end

    def _apply(self, at, end):
        kind, descriptor, position, size = HEAD.unpack_from(self._data, at)
        data = self._data[at + HEAD.size : end]
        if kind == b"k":
            self.checkpoint = data
        elif kind == b"c":
            self.claim.store(position, data)
        elif kind == b"b":
            self.claim.begin_sync()
        elif kind == b"n":
            self.claim.end_sync()
        elif kind == b"r":
            self.replacing[data[:position].decode()] = data[position:]
        elif kind == b"f":
            name = data.decode()
            self.small[name] = self.replacing.pop(name)
        elif kind == b"o":
            name = data.decode()
            self._names[descriptor] = name
            if name not in self.files:
                [size] = [
                    s for kind, s in self._sizes.items() if f"/{kind}/" in name
                ] or [int(Path(name).stat().st_size)]
                self.files[name] = TracedFile(size)
        else:
            file = self.files[self._names[descriptor]]
            if kind == b"w":
                file.write(position, data)
            elif kind == b"d":
                file.write_direct(position, data)
            elif kind == b"z":
                file.write(position, bytes(size))
            elif kind == b"s":
                file.begin_sync()
            elif kind == b"e":
                file.end_sync()

    def durable_log_end(self):
        """Return the offset below which all of the log is on the disk for certain."""
        end = 0
        logs = sorted(
            name
            for name, file in self.files.items()
            if "/commitlog/" in name and file.written_end
        )  # one that was made ahead says nothing about those before
        for number, name in enumerate(logs):
            file = self.files[name]
            base = int(Path(name).name)
            assert base == end, name
            if file.open_pages:
                return base + min(file.open_pages) * PAGE
            if not file.is_synced:
                return base
            is_last = number + 1 == len(logs)
            end = base + (file.written_end if is_last else file.size)
        return end

    def write_image(self, root, target, chance):
        """Make one disk that may be found after the cut; `chance` chooses pages."""
        target.mkdir(parents=True, exist_ok=True)  # a cut may come before any file
        likelihood = chance.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        last = defaultdict(str)
        for name in self.files:
            folder = str(Path(name).parent)
            last[folder] = max(last[folder], name)
        for name, file in self.files.items():
            path = target / Path(name).relative_to(root)
            path.parent.mkdir(parents=True, exist_ok=True)
            fate = "whole"
            if not file.is_synced and name == last[str(Path(name).parent)]:
                fate = chance.choice(["whole", "whole", "empty", "absent"])
            if fate == "absent":
                continue
            with path.open("wb") as image:
                if fate == "empty":
                    continue
                image.truncate(file.size)
                pages = dict(file.durable)
                for number in sorted(file.open_pages):
                    if chance.random() < likelihood:
                        pages[number] = bytes(file.page(number))
                    elif path.name == "ring" and chance.random() < 0.5:
                        pages[number] = file.earlier.get(number, bytes(PAGE))
                    elif number in file.torn and chance.random() < 0.5:
                        pages[number] = torn(
                            pages.get(number, bytes(PAGE)), file.page(number), chance
                        )
                for number, page in pages.items():
                    image.seek(number * PAGE)
                    image.write(page[: file.size - number * PAGE])
        (target / "abort").write_text(self._abort)
        (target / "claim").write_bytes(self.claim.choose(chance))
        if self.checkpoint:
            (target / "checkpoint").write_bytes(self.checkpoint)
        replaced = {n: d for n, d in self.replacing.items() if chance.random() < 0.5}
        for name, data in (self.small | replaced).items():
            path = target / Path(name).relative_to(root)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)


def torn(old, new, chance):
    """Return a page of which each sector is old or new."""
    return b"".join(
        bytes(chance.choice([old, new])[at : at + SECTOR])
        for at in range(0, PAGE, SECTOR)
    )
