"""What a disk does to the files of a machine while that does not run.

Never to all copies of something: the log has what a queue entry says, and a table has
older versions.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.cluster.known_set import KnownSetFile

ROT = "rot"
"""The kind of `choose_rot`, which a disturbance ends itself."""

UNLINK = "unlink"
"""The kind of `unlink_file`, for a log that another machine has, too."""

FORGET = "forget"
"""The kind of `forget_state`, for the machine of the controller."""

ENTRY_SIZE = 20
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
    kind = chance.choice(["empty", "cut", "zeros", "bit"])
    if kind == "bit":
        _change(path, chance.randrange(size), chance.randrange(8))
    else:
        text = path.read_bytes()[: size // 2 if kind == "cut" else 0]
        _write(path, bytes(size) if kind == "zeros" else text)
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
        _change(path, at, chance.randrange(8))
    elif kind == "slot":
        at = chance.choice([0, CLAIM_SLOT])
        data[at : at + CLAIM_SLOT] = bytes(CLAIM_SLOT)
        _write(path, bytes(data))
    else:
        _write(path, bytes(len(data)) if kind == "zeros" else bytes(data[:100]))
    return f"{kind}: claim"


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
            _write(path, data)
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
DAMAGE_KINDS = ROT, UNLINK, FORGET, *DAMAGES


def _change(path: Path, at: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    _write(path, bytes(data))


def _write(path: Path, data: bytes) -> None:
    """Write it to the disk, too: a power cut does not mend it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
