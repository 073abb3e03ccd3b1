"""A fresh clone and `make run`: what a newcomer sees, and how long it takes."""

import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from .conftest import clean_environment

pytestmark = [pytest.mark.distribution, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
SILENCE_S = 5
SLACK = 3
"""Other work on the machine makes a line late, and the whole slower."""

READY_S = 90
READY_AGAIN_S = 1
C_LINES = 800_000
MODULE_BYTES = 4_500_000
OF_MEMORY_VIEWS = b"Cannot create writable memory view"
"""A text of Cython's class for views of memory."""


class FirstRun(NamedTuple):
    """What `make run` showed until the broker was ready."""

    text: str
    took_s: float
    longest_gap: tuple[float, str]


def make_run(checkout: Path, environment: dict[str, str]) -> FirstRun:
    """Run `make run` until the broker is ready, and stop it."""
    store = f"--set storePathRootDir={checkout.parent}/store"
    ports = "--set listenPort=0 --set rmq.namesrv.listenPort=0"
    started = last = time.monotonic()
    gaps, lines = [], []
    with subprocess.Popen(
        ["make", "run", f"ARGS={store} {ports}"],
        cwd=checkout,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    ) as child:
        for line in child.stdout:
            now = time.monotonic()
            gaps.append((now - last, line))
            last = now
            lines.append(line)
            if line.startswith("ready "):
                break
        took_s = time.monotonic() - started
        tool = subprocess.run(
            ["pgrep", "-g", str(child.pid), "-f", "rmq broker"],
            capture_output=True,
            text=True,
            check=True,
        )
        subprocess.run(["kill", tool.stdout.split()[-1]], check=True)
        child.wait(20)
    return FirstRun("".join(lines), took_s, max(gaps))


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("first") / "rmq"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(folder)], check=True)
    return folder


@pytest.fixture(scope="module")
def first_run(checkout) -> FirstRun:
    return make_run(checkout, clean_environment())


def test_make_run_is_never_silent_and_says_what_to_type_next(first_run):
    text = first_run.text
    assert re.search(r"making \.venv +\d+ s", text), text
    assert re.search(r"compiling (\d+) modules, .* \1 of \1 ", text), text
    assert "warning" not in text
    assert ".venv/bin/activate makes it rmq" in text
    print(f"first make run: {first_run.took_s:.0f} s")  # noqa: T201 - the figure
    assert first_run.longest_gap[0] < SILENCE_S * SLACK, first_run.longest_gap
    assert first_run.took_s < READY_S * SLACK


def test_a_second_make_run_starts_at_once(first_run, checkout, own_environment):
    took_s = make_run(checkout, own_environment).took_s
    print(f"second make run: {took_s:.2f} s")  # noqa: T201 - the figure
    assert took_s < READY_AGAIN_S * SLACK


def test_modules_share_the_code_that_cython_gives_to_each(first_run, checkout):
    assert first_run.text
    sources = list(checkout.glob("build/plain-*/c/rmq/_fastpath/**/*.c"))
    lines = sum(source.read_bytes().count(b"\n") for source in sources)
    modules = list(checkout.glob("rmq/_fastpath/**/*.so"))
    size = sum(module.stat().st_size for module in modules)
    print(f"{lines} lines of C, {size} bytes of modules")  # noqa: T201 - the figures
    assert len(sources) == len(modules) > 50
    assert lines <= C_LINES
    assert size <= MODULE_BYTES
    (shared,) = [each for each in modules if OF_MEMORY_VIEWS in each.read_bytes()]
    assert shared.name.startswith("_cython_shared.")


def test_the_checkout_has_nothing_generated_but_what_git_ignores(first_run, checkout):
    assert first_run.text
    status = ["git", "status", "--porcelain"]
    assert subprocess.check_output(status, cwd=checkout, text=True) == ""
    assert not list(checkout.glob("rmq/**/*.c"))
