"""Makes .venv and compiles rmq into it; `make run` and the other targets call it.

    python packaging/first_run.py VENV [GROUP …]

A group is one of pyproject.toml's dependency groups: libraries that tests and tools
need. All libraries are fetched while the compiler works.

It runs with the Python that .venv is made of, so it imports the standard library only.
Each step is one line with its seconds. On a terminal the line of a running step changes
each second; elsewhere a line comes every four seconds. The output of a step is shown if
the step fails.
"""

import subprocess
import sys
import time
import tomllib
from pathlib import Path

INTERVAL_S = 4
WIDTH = 70
PROJECT = Path("pyproject.toml")
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check")


def main(venv: Path, groups: list[str]) -> None:
    """Make the virtual environment at `venv`, and an editable rmq in it."""
    python = str(venv / "bin" / "python")
    if not Path(python).exists():
        finish(f"making {venv}", start(sys.executable, "-m", "venv", str(venv)))
    project = tomllib.loads(PROJECT.read_text())
    tools = project["build-system"]["requires"]
    finish("installing setuptools, Cython", start(python, *PIP, *tools))
    libraries = list(project["project"]["dependencies"])
    for group in groups:
        libraries += members(project["dependency-groups"], group)
    fetching = start(python, *PIP, *libraries)
    # pip would hide this output
    compiling = [python, "setup.py", "-q", "build_ext", "--inplace"]
    if subprocess.run(compiling, check=False).returncode:
        fetching.kill()
        sys.exit("rmq: a module could not be compiled; the reason is above")
    finish("installing libraries", fetching)
    if not is_installed(venv):
        options = ("--no-build-isolation", "--no-deps")
        finish("installing rmq", start(python, *PIP, *options, "-e", "."))


def members(groups: dict[str, list[str | dict[str, str]]], name: str) -> list[str]:
    """Return the libraries of a dependency group and of those that it includes."""
    found: list[str] = []
    for each in groups[name]:
        if isinstance(each, str):
            found.append(each)
        else:
            found += members(groups, each["include-group"])
    return found


def is_installed(venv: Path) -> bool:
    """Return whether rmq was installed after the last change of the project file."""
    changed = PROJECT.stat().st_mtime
    records = venv.glob("lib/python*/site-packages/rmq-*.dist-info/RECORD")
    return any(record.stat().st_mtime > changed for record in records)


def start(*command: str) -> subprocess.Popen[str]:
    """Start a command."""
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(name: str, process: subprocess.Popen[str]) -> None:
    """Show how long the user waits for a command; stop if it fails."""
    started = time.monotonic()
    is_terminal = sys.stderr.isatty()
    while True:
        try:
            output, _ = process.communicate(timeout=1 if is_terminal else INTERVAL_S)
        except subprocess.TimeoutExpired:
            show(name, time.monotonic() - started, end="" if is_terminal else "\n")
        else:
            break
    show(name, time.monotonic() - started, end="\n")
    if process.returncode:
        sys.exit(f"{output}\nrmq: {name} failed: {' '.join(process.args)}")


def show(name: str, took_s: float, end: str) -> None:
    """Write the line of a step."""
    start = "\r" if sys.stderr.isatty() else ""
    line = f"{start}  {name:<{WIDTH}}{took_s:5.0f} s"
    print(line, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
