"""Small files that are replaced as a whole: tables, settings, checkpoints.

Crash contract of `replace_file`: at every moment, also after a power cut, the file has
the complete old content or the complete new content. A file that did not exist may
still not exist. After the return the file has the new content. `<name>.bak` has the
content before the last replacement, or does not exist. No code reads a leftover
`<name>.tmp`. A file has only one writer at a time; every function here blocks.
"""

import contextlib
import os
import stat
from pathlib import Path


def replace_file(
    path: Path, data: bytes, *, backup: bool = False, mode: int | None = None
) -> None:
    """Write `<name>.tmp` and rename it; create the folder if needed.

    The new file has the permissions of the old one and, if this process may set it, the
    owner; `mode` overrides the permissions. The temporary file is not readable by more
    users than the new file. With `backup` the old file stays as `<name>.bak`. OSError
    if it cannot be written; the old file is unchanged then.
    """
    folder = path.parent
    _make_folder(folder)
    before = _status_of(path)
    draft = path.with_name(path.name + ".tmp")
    draft.unlink(missing_ok=True)
    try:
        _write_draft(draft, data, before, mode)
        if backup and before is not None:
            kept = path.with_name(path.name + ".bak")
            kept.unlink(missing_ok=True)
            os.link(path, kept)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # report the first error
            draft.unlink(missing_ok=True)
        raise
    sync_directory(folder)


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed names of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _status_of(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_directory(folder.parent)


def _write_draft(
    draft: Path, data: bytes, before: os.stat_result | None, mode: int | None
) -> None:
    """Write and sync the new content; it is private until its owner is set."""
    if mode is None and before is not None:
        mode = stat.S_IMODE(before.st_mode)
    created = 0o666 if mode is None else 0o600  # minus the umask
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, created), "wb") as file:
        if before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(file.fileno(), before.st_uid, before.st_gid)
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
