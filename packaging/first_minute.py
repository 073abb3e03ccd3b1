"""Installs an archive of rmq in an empty environment, and follows README.md.

    python packaging/first_minute.py ARCHIVE [PYTHON]

A broker starts on free ports, a message goes in and comes out, and the broker stops.
It prints the seconds of each step.  The work fails without the message, with an error
line of the broker, and after LIMIT_S seconds without the installation.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT_S = 15.0
READY = re.compile(r"ready broker=\S+ address=\S+ namesrv=(\S+)")
TEXT = "hello, rmq"


def first_minute(archive: Path, python: str = sys.executable) -> dict[str, float]:
    """Return the seconds of each step; the key `install` needs the network."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        own = make_environment(Path(folder), python, archive)
        took = {"install": time.monotonic() - began}
        return took | send_and_consume(Path(folder), str(own.parent / "rmq"))


def make_environment(folder: Path, python: str, archive: Path) -> Path:
    """Make an environment with this archive; return its Python."""
    run(python, "-m", "venv", str(folder / "venv"))
    own = folder / "venv" / "bin" / "python"
    pip = (str(own), "-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*pip, str(archive.resolve()))
    return own


def send_and_consume(folder: Path, rmq: str) -> dict[str, float]:
    """Start a broker, send and consume a message, and stop; return the seconds."""
    home = folder / "home"
    home.mkdir()
    environment = os.environ | {"HOME": str(home)}
    environment.pop("NAMESRV_ADDR", None)
    settings = ("listenPort=0", "rmq.namesrv.listenPort=0", "rmq.console=false")
    began = time.monotonic()
    log = folder / "broker.log"
    with log.open("w") as output:
        broker = subprocess.Popen(
            [rmq, "broker", *(part for each in settings for part in ("--set", each))],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=home,
        )
    try:
        found = None
        while found is None:
            lines = log.read_text()
            if broker.poll() is not None or time.monotonic() > began + LIMIT_S:
                sys.exit(f"the broker is not ready:\n{lines}")
            found = READY.search(lines)
            time.sleep(0.01)
        took = {"ready": time.monotonic() - began}
        options = ("-n", found[1])
        sent = time.monotonic()
        run(rmq, "send", "Hello", TEXT, *options, env=environment)
        took["send"] = time.monotonic() - sent
        read = time.monotonic()
        seen = run(rmq, "consume", "Hello", "-c", "1", *options, env=environment)
        took["consume"] = time.monotonic() - read
    finally:
        broker.send_signal(signal.SIGTERM)
        status = broker.wait(LIMIT_S)
    lines = log.read_text()
    if TEXT not in seen or status or "ERROR" in lines or "Traceback" in lines:
        sys.exit(f"status {status}, consumed {seen!r}, the broker's log:\n{lines}")
    took["all"] = time.monotonic() - began
    if took["all"] > LIMIT_S:
        sys.exit(f"it took {took['all']:.1f} s, more than {LIMIT_S:g}")
    return took


def run(*command: str, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it prints; stop if it fails."""
    done = subprocess.run(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {' '.join(command)}")
    return done.stdout


if __name__ == "__main__":
    steps = first_minute(Path(sys.argv[1]), *sys.argv[2:3])
    print(", ".join(f"{name} {took:.2f} s" for name, took in steps.items()))
