"""Data recorded from Java RocketMQ 5.5.0 and its clients: unpacked once a process.

    facts-5.5.0.json              codes, header fields, defaults, by reflection
    frames/NAME.jsonl             the frames of one recorded run, a JSON object a line
    frames/ha-NAME.jsonl          chunks of a replication stream
    frames/NAME-output.jsonl      arguments and printed text of mqadmin
    stores/NAME/, NAME.conf       a store of a Java broker, and its configuration
    stores/NAME.expected.jsonl    what Java serves from that store
    stores/NAME.recovered.json    what Java made of a store after a kill or damage
    stores/NAME.acked.jsonl       the sends that were answered before the kill
    stores/NAME.tree.json         size and SHA-256 of each file of the store

`pack.py` makes the archive; `data/README.md` describes the rows.
"""

import atexit
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

ARCHIVE = Path(__file__).parent / "data" / "java-5.5.0.tar.xz"
SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Early releases of Python 3.11 have no filters."""

_lines: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


@cache
def unpacked() -> Path:
    """Return the folder of everything above; nobody writes to it."""
    folder = tempfile.mkdtemp(prefix="rmq-golden-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    unpack(ARCHIVE, Path(folder))
    return Path(folder)


def unpack(archive: Path, into: Path) -> None:
    """Unpack an archive with the holes and times of its files."""
    with tarfile.open(archive) as opened:
        opened.extractall(into, **SAFELY)


def frame_files() -> list[Path]:
    """All files of remoting frames: no printed text, no replication."""
    return [
        path
        for path in sorted((unpacked() / "frames").glob("*.jsonl"))
        if not path.stem.startswith("ha-") and not path.stem.endswith("-output")
    ]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read a file of JSON lines."""
    return _lines.decode_lines(path.read_bytes())


def copy_store(name: str, into: Path) -> Path:
    """Copy a store to `into/NAME`, for a test that opens it; its holes stay holes."""
    source = unpacked() / "stores" / name
    subprocess.run(["cp", "-a", str(source), str(into)], check=True)
    return into / name
