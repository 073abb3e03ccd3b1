"""Files: the pages of the console, read once, with their compressed forms."""

import gzip
import hashlib
from importlib import resources
from typing import Final, NamedTuple

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class File(NamedTuple):
    """A file as it is sent."""

    content: bytes
    packed: bytes
    content_type: str
    etag: str


def read_files() -> dict[str, File]:
    """Return all files by their path in the address."""
    found = {}
    for entry in resources.files("rmq.console").joinpath("web").iterdir():
        ending = entry.name.rpartition(".")[2]
        if ending in TYPES:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            packed = gzip.compress(content, 9, mtime=0)
            found[f"/{entry.name}"] = File(content, packed, TYPES[ending], etag)
    found["/"] = found["/index.html"]
    return found
