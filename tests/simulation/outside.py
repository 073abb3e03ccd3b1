"""The library that answers simulated nodes in place of the machine: `outside.c`."""

import compileall
import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("outside.c")
ROOT = Path(__file__).resolve().parents[2]
PLACE = "RMQ_OUTSIDE"
NO_RANDOM_ADDRESSES = 0x0040000


def build(folder: Path) -> Path:
    """Compile the library."""
    library = folder / "outside.so"
    options = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(
        ["gcc", *options, "-o", str(library), str(SOURCE), "-ldl"], check=True
    )
    return library


def ensure_preloaded() -> None:
    """Begin the process again with the library, unless it has it.

    Then hashes and addresses are the same each time, too: sets have one order. What a
    node imports late is compiled before, as a compilation would move addresses.
    """
    if PLACE in os.environ:
        return
    for package in ("rmq", "plugins", "tests"):
        compileall.compile_dir(ROOT / package, quiet=1)
    library = str(build(Path(tempfile.mkdtemp(prefix="rmq-outside-"))))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "TMPDIR": tempfile.gettempdir(),
        "LD_PRELOAD": library,
        "PYTHONHASHSEED": "0",
        PLACE: library,
    }
    ctypes.CDLL(None).personality(NO_RANDOM_ADDRESSES)
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def library() -> ctypes.CDLL:
    """Return the library of this process."""
    found = ctypes.CDLL(os.environ[PLACE])
    found.outside_deadline.restype = ctypes.c_int64
    return found
