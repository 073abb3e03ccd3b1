"""The first minute of docs/clients/celery.md, as it is written, with a wheel."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .pages import shell

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/clients/celery.md"
BLOCK = re.compile(r"^```(?:python)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
RESULT_LIMIT_S = 60
SLACK = 3
"""Other work on the machine makes everything slower."""


def blocks() -> tuple[list[str], str, list[str]]:
    """The commands that begin, the file tasks.py, and the commands that use it."""
    section = PAGE.read_text().split("## First minute\n")[1].split("\n## ")[0]
    first, program, last = BLOCK.findall(section)
    return first.splitlines(), program, last.splitlines()


def test_the_first_minute(wheel, tmp_path, own_environment):
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    path = f"{tmp_path / 'venv/bin'}{os.pathsep}{own_environment['PATH']}"
    environment = own_environment | {"PATH": path}
    (install, serve), program, (work, call) = blocks()
    started_s = time.monotonic()
    with shell(tmp_path, environment) as terminal:
        terminal.run(install.replace("rmq-….whl", str(wheel)))
        installed_s = time.monotonic()
        terminal.run(f"{serve} --set storePathRootDir={tmp_path / 'store'}")
        text = terminal.with_real_addresses(program)
        (tmp_path / "tasks.py").write_text(text)
        with subprocess.Popen(
            ["bash", "-c", f"exec {work}"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as worker:
            try:
                result = terminal.run(call)
                took_s = time.monotonic() - started_s
            finally:
                worker.terminate()
                worker.wait(30)
    print(  # noqa: T201 - the figures
        f"pip install to a result: {took_s:.1f} s, of them pip "
        f"{installed_s - started_s:.1f} s"
    )
    assert result.split() == ["3"]
    assert took_s < RESULT_LIMIT_S * SLACK
