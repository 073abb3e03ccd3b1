"""What a disk does to the files of a machine while that does not run.

Never to all copies of something: the log has what a queue entry says, and a table has
older versions.
"""

import json
import os
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.cluster.known_set import KnownSetFile
from rmq.protocol.properties import KEYS
from rmq.store.claim import CLAIM_SIZE
from rmq.store.log_digests import read_digests

ROT = "rot"
"""The kind of `choose_rot`, which a disturbance ends itself."""

UNLINK = "unlink"
"""The kind of `unlink_file`, for a log that another machine has, too."""

ROT_OLD = "rot-old"
"""The kind of `choose_old_rot`, see `disk_faults.py`."""

LIE = "lie"
"""A disk has lost what it had confirmed, see `disk_faults.py`."""

FORGET = "forget"
"""The kind of `forget_state`, for the machine of the controller."""

ENTRY_SIZE = 20
KEY_FIELD = f"{KEYS}\x01".encode()
CLAIM_SLOT = 2048
CLAIM_USED = 76
TABLES = "consumerOffset.json", "topics.json"


def rot_queue(folder: Path, chance: random.Random) -> str:
    """Flip a bit in the last entry of a queue; return what was done."""
    queues = sorted({path.parent for path in folder.glob("consumequeue/*/*/0*")})
    if not queues:
        return "there is no queue"
    path = max(chance.choice(queues).iterdir())
    used = len(path.read_bytes().rstrip(b"\0"))
    if not used:
        return f"{path.parent.name} is empty"
    bit = chance.randrange(ENTRY_SIZE * 8)
    at = (used - 1) // ENTRY_SIZE * ENTRY_SIZE + bit // 8
    _change(path, at, bit % 8)
    return f"bit {bit} of an entry in {path.relative_to(folder)}"


def rot_table(folder: Path, chance: random.Random) -> str:
    """Damage the newest version of a table; return what was done."""
    path = folder / "config" / chance.choice(TABLES)
    if not path.exists() or not path.with_name(path.name + ".bak").exists():
        return f"{path.name} has one version"
    size = path.stat().st_size
    if not size:
        return f"{path.name} is empty already"
    kind = chance.choice(["empty", "cut", "zeros", "bit"])
    if kind == "bit":
        _change(path, chance.randrange(size), chance.randrange(8))
    else:
        text = path.read_bytes()[: size // 2 if kind == "cut" else 0]
        write_durably(path, bytes(size) if kind == "zeros" else text)
    return f"{kind}: {path.name}"


def rot_claim(folder: Path, chance: random.Random) -> str:
    """Damage the claim: a bit, a slot, the whole page, or remove it."""
    path = folder / "claim"
    if not path.exists():
        return "there is no claim"
    kind = chance.choice(["bit", "slot", "zeros", "cut", "gone"])
    data = bytearray(path.read_bytes())
    if kind == "gone":
        path.unlink()
    elif kind == "bit":
        at = chance.choice([0, CLAIM_SLOT]) + chance.randrange(CLAIM_USED)
        _change(path, at % len(data), chance.randrange(8))  # it may be cut already
    elif kind == "slot":
        at = chance.choice([0, CLAIM_SLOT])
        data[at : at + CLAIM_SLOT] = bytes(CLAIM_SLOT)
        write_durably(path, bytes(data))
    else:
        write_durably(path, bytes(len(data)) if kind == "zeros" else bytes(data[:100]))
    return f"{kind}: claim"


def confirmed_of(folder: Path) -> int:
    """Return the offset that the group has confirmed, as a machine's claim says; -1
    without a right claim.
    """
    page, checkpoint = folder / "claim", folder / "checkpoint"
    if not page.exists() or page.stat().st_size != CLAIM_SIZE:
        return -1
    claim = Claim(bytearray(page.read_bytes()), bytes(16))
    named = zlib.crc32(checkpoint.read_bytes()) if checkpoint.exists() else 0
    is_right = claim.store_number > 0 and named in claim.checkpoint_crcs
    return claim.confirmed_offset if is_right else -1


class Rot(NamedTuple):
    """A changed bit in the log, which the disk may give right again."""

    name: str
    at: int
    bit: int
    right: int
    """The byte before."""

    def flip(self, folder: Path) -> None:
        """Change it."""
        _change(folder / self.name, self.at, self.bit)

    def undo(self, folder: Path) -> None:
        """Change it back, unless the broker has another byte there now.

        A ring may have had the right one, or the byte was of a torn end and was cut.
        """
        path = folder / self.name
        wrong = self.right ^ 1 << self.bit
        if path.exists() and path.read_bytes()[self.at] == wrong:
            _change(path, self.at, self.bit)


def choose_rot(folder: Path, chance: random.Random) -> Rot | None:
    """Choose a bit of a record in the last log file that a start has to find."""
    paths = sorted(folder.glob("commitlog/*"), reverse=True)
    path = next((each for each in paths if any(each.read_bytes())), None)
    if path is None:
        return None
    size = path.stat().st_size
    file = MappedFile(str(path), size, base_offset=int(path.name), writable=False)
    _, _, records = walk_log(file, 0, size, check_crc=False)
    file.close()
    if not records:
        return None
    start = chance.choice(records).physical_offset - int(path.name)
    at = start + chance.choice([*range(12), *range(28, 36), *range(84, 90)])
    right = path.read_bytes()[at]
    return Rot(str(path.relative_to(folder)), at, chance.randrange(8), right)


def choose_old_rot(
    folder: Path, chance: random.Random, name: str | None = None
) -> Rot | None:
    """Choose a bit of a key in a file of the log whose digests are saved.

    The key is in the properties, which no checksum of the format covers. `name`: the
    file, with or without digests.
    """
    paths = [folder / name] if name else list(_sealed_files(folder))
    if not paths:
        return None
    path = chance.choice(paths)
    size = path.stat().st_size
    file = MappedFile(str(path), size, base_offset=int(path.name), writable=False)
    _, _, records = walk_log(file, 0, size, check_crc=False)
    file.close()
    places = [
        each.physical_offset - int(path.name) + each.size - len(each.properties) + at
        for each in records
        if (at := each.properties.find(KEY_FIELD) + len(KEY_FIELD)) >= len(KEY_FIELD)
    ]
    if not places:
        return None
    at = chance.choice(places)
    name = str(path.relative_to(folder))
    return Rot(name, at, chance.randrange(8), path.read_bytes()[at])


def _sealed_files(folder: Path) -> Iterator[Path]:
    """Yield the files of the log that have saved digests of all their blocks."""
    for digests in sorted(folder.glob("digest/*")):
        path = folder / "commitlog" / digests.name
        if not path.exists():
            continue
        size = path.stat().st_size
        found = read_digests(digests.read_bytes(), int(path.name), size)
        if found is not None and len(found[0]) == -(-size // BLOCK_BYTES) * 4:
            yield path


STATE = "groups.json", "groups.2.json"


def state_of(folder: Path) -> list[bytes | None]:
    """Return both copies of a controller's state."""
    paths = [folder / name for name in STATE]
    return [path.read_bytes() if path.exists() else None for path in paths]


def forget_state(folder: Path, older: list[bytes | None], chance: random.Random) -> str:
    """Replace one copy of the state, or both, by an older one; or remove one."""
    numbers = chance.choice([[0], [1], [0, 1]])
    is_removed = len(numbers) == 1 and chance.random() < 0.3
    for number in numbers:
        data = None if is_removed else older[number]
        path = folder / STATE[number]
        path.unlink(missing_ok=True)
        if data is not None:
            write_durably(path, data)
    what = "gone" if is_removed else "old"
    return " and ".join(STATE[number] for number in numbers) + f": {what}"


def is_hidden(folder: Path, member: Path) -> bool:
    """Whether neither a controller's state nor what a member has saved shows that the
    state is old.
    """
    copies = [json.loads(each) if each else {} for each in state_of(folder)]
    generations = [each.get("generation", -2) for each in copies]
    if max(generations) - min(generations) > 1:
        return False
    newest = max(copies, key=lambda each: each.get("generation", -2))
    groups = newest.get("groups", {}).values()
    terms = [(each["master_epoch"], each["set_epoch"]) for each in groups]
    return KnownSetFile(member / "knownSet").place <= max(terms, default=(0, 0))


def unlink_file(folder: Path, chance: random.Random) -> str:
    """Remove the first, the last or another file of the log; return what was done."""
    paths = sorted(folder.glob("commitlog/*"))
    if not paths:
        return "there is no log"
    path = chance.choice([paths[0], paths[-1], chance.choice(paths)])
    path.unlink()
    return f"{path.name} of {len(paths)} files is gone"


DAMAGES: dict[str, Callable[[Path, random.Random], str]] = {
    "rot-claim": rot_claim,
    "rot-queue": rot_queue,
    "rot-table": rot_table,
}
DAMAGE_KINDS = ROT, UNLINK, FORGET, ROT_OLD, LIE, *DAMAGES


def _change(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    write_durably(path, bytes(data))


def write_durably(path: Path, data: bytes) -> None:
    """Write a file to the disk, too: a power cut does not mend it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
