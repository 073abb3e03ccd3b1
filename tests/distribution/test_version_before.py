"""The version before: its stores, configurations and public names still work.

It is the newest tag below this commit. Before the first release there is no tag; then
the test compares the checkout with itself, which tries the steps of the test.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"ready broker=\S+ address=\S+ namesrv=(\S+)")
PUBLIC = ("rmq.client", "rmq.plugin", "rmq.testing")


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Path:
    """Return the compiled checkout of the version before."""
    described = subprocess.run(
        ["git", "describe", "--tags", "--abbrev=0", "--match", "v*", "HEAD^"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if described.returncode:
        return ROOT
    folder = tmp_path_factory.mktemp("before")
    tag = described.stdout.strip()
    archive = subprocess.run(
        ["git", "archive", tag], cwd=ROOT, stdout=subprocess.PIPE, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    build = [sys.executable, "setup.py", "build_ext", "--inplace"]
    subprocess.run(build, cwd=folder, capture_output=True, check=True)
    return folder


def environment(checkout: Path) -> dict[str, str]:
    paths = f"{checkout}{os.pathsep}{checkout / 'plugins'}"
    return {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"} | {
        "PYTHONPATH": paths
    }


def rmq(checkout: Path, *arguments: str) -> str:
    """Run a command of a checkout; return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "rmq", *arguments],
        cwd=checkout,
        env=environment(checkout),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def broker(checkout: Path, store: Path) -> Iterator[str]:
    """Run the broker of a checkout; the address of its name server."""
    settings = (
        "listenPort=0",
        "rmq.namesrv.listenPort=0",
        "rmq.console=false",
        f"storePathRootDir={store}",
    )
    log = store.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rmq", "broker"]
            + [part for each in settings for part in ("--set", each)],
            cwd=checkout,
            env=environment(checkout),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until(lambda: READY.search(log.read_text()) is not None)
        found = READY.search(log.read_text())
        assert found is not None
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        status = process.wait(30)
    assert status == 0, log.read_text()
    assert "ERROR" not in log.read_text()


def test_each_version_opens_the_store_of_the_other(before, tmp_path):
    store = tmp_path / "store"
    texts = ["of the version before", "of this version"]
    for checkout, text in zip((before, ROOT), texts, strict=True):
        with broker(checkout, store) as namesrv:
            rmq(checkout, "send", "Both", text, "-n", namesrv)
    for checkout in (before, ROOT):
        with broker(checkout, store) as namesrv:
            seen = rmq(checkout, "consume", "Both", "-c", "2", "-n", namesrv)
        assert all(text in seen for text in texts)


def test_this_version_reads_each_configuration_of_the_one_before(before):
    kinds = ".conf", ".properties"
    files = [each for each in before.glob("conf/**/*") if each.suffix in kinds]
    assert files
    for file in files:
        rmq(ROOT, "config", "check", str(file))


@pytest.mark.parametrize("package", PUBLIC)
def test_public_names_of_the_version_before_are_there(before, package):
    code = f"import {package} as p; print(*(n for n in p.__all__ if hasattr(p, n)))"
    names = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=checkout,
            env=environment(checkout),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for checkout in (before, ROOT)
    ]
    assert names[0]
    assert set(names[0]) <= set(names[1])
