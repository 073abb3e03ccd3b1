"""Makes .venv and compiles rmq into it; `make run` and `make dev` call it.

It runs with the Python that .venv is made of, so it imports the standard library only.
Each step is one line with its seconds. On a terminal the line of a running step changes
each second; elsewhere a line comes every four seconds. The output of a step is shown if
the step fails.
"""

import subprocess
import sys
import time
from pathlib import Path

INTERVAL_S = 4
WIDTH = 70
PIP = ("-m", "pip", "install", "-q", "--disable-pip-version-check")


def main(venv: Path) -> None:
    """Make the virtual environment at `venv`, and an editable rmq in it."""
    python = str(venv / "bin" / "python")
    if not Path(python).exists():
        step(f"making {venv}", sys.executable, "-m", "venv", str(venv))
    step("installing setuptools, Cython", python, *PIP, "setuptools>=77", "cython>=3.1")
    # pip would hide this output
    compiling = [python, "setup.py", "-q", "build_ext", "--inplace"]
    if subprocess.run(compiling, check=False).returncode:
        sys.exit("rmq: a module could not be compiled; the reason is above")
    step("installing rmq", python, *PIP, "--no-build-isolation", "-e", ".")


def step(name: str, *command: str) -> None:
    """Run a command and show how long it takes; stop if it fails."""
    started = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
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
        sys.exit(f"{output}\nrmq: {name} failed: {' '.join(command)}")


def show(name: str, took_s: float, end: str) -> None:
    """Write the line of a step."""
    start = "\r" if sys.stderr.isatty() else ""
    line = f"{start}  {name:<{WIDTH}}{took_s:5.0f} s"
    print(line, end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
