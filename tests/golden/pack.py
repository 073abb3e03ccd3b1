"""Pack recordings into the archive that the golden tests read.

    RMQ_GOLDEN=folder python tests/golden/pack.py

The folder has the layout of `recordings.py`; a file may be compressed (`….xz`) and a
store may be an archive (`….tar.xz`). All becomes one archive, so that what recordings
have in common is stored once; files keep their holes and their times.
"""

import lzma
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.golden.recordings import ARCHIVE, unpack

LIMIT_BYTES = 4_000_000
"""A clone carries every version of the archive for ever."""


def gather(source: Path, into: Path) -> None:
    """Copy facts, frames and stores; what is compressed is opened."""
    for name in ("frames", "stores"):
        (into / name).mkdir()
        for path in sorted((source / name).iterdir()):
            gather_one(path, into / name)
    for path in source.glob("facts-*.json"):
        gather_one(path, into)


def gather_one(path: Path, into: Path) -> None:
    """Copy a file or a store."""
    if path.name.endswith(".tar.xz"):
        unpack(path, into)
    elif path.suffix == ".xz":
        (into / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
    elif path.is_dir():
        subprocess.run(["cp", "-a", str(path), str(into)], check=True)
    else:
        shutil.copy2(path, into)


def pack(source: Path, archive: Path) -> int:
    """Write the archive and return its size."""
    with tempfile.TemporaryDirectory(prefix="rmq-golden-") as name:
        gather(source, Path(name))
        command = [
            "tar", "-cC", name, "--format=pax", "--sort=name", "--owner=root:0",
            "--group=root:0", "--sparse", "--hole-detection=raw", ".",
        ]  # fmt: skip
        packed = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    archive.write_bytes(lzma.compress(packed, preset=9 | lzma.PRESET_EXTREME))
    return archive.stat().st_size


def main() -> int:
    """Pack what RMQ_GOLDEN names."""
    source = os.environ.get("RMQ_GOLDEN")
    if not source:
        print("RMQ_GOLDEN names the folder of recordings to pack.")  # noqa: T201
        return 2
    size = pack(Path(source), ARCHIVE)
    print(f"{ARCHIVE}: {size:,} bytes of at most {LIMIT_BYTES:,}")  # noqa: T201
    return int(size > LIMIT_BYTES)


if __name__ == "__main__":
    raise SystemExit(main())
