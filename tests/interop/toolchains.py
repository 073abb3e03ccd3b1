"""The clients' toolchains, installed from their registries into a cache outside the
tree.

`RMQ_INTEROP_CACHE` says where (default: rmq-interop in the user's cache folder).  A
toolchain that is missing on the machine is reported as not run; one that is present and
cannot be prepared is a failure.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).parent / "clients"
PIP_REQUIREMENT = "rocketmq==0.4.4"
MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get("RMQ_INTEROP_CACHE") or Path(base) / "rmq-interop")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run(command: list[str], *, timeout_s: float, cwd: Path | None = None) -> str:
    """Run to the end; the output, or an AssertionError with it."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=plain_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{command[:3]} failed:\n{done.stdout[-3000:]}"
    return done.stdout


def plain_environment() -> dict[str, str]:
    """The environment without what would lead a client's Python to our modules."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


class Java:
    """Java programs of `clients/java` and mqadmin."""

    name = "Java 5.5.0"

    def __init__(self) -> None:
        self._libraries = cache_folder() / "java-5.5.0"
        self._classes = Path()

    @staticmethod
    def missing() -> str | None:
        absent = [tool for tool in ("java", "javac", "mvn") if not shutil.which(tool)]
        return f"no {' and no '.join(absent)} on this machine" if absent else None

    def prepare(self) -> None:
        sources = sorted((CLIENTS / "java").glob("*.java"))
        pom = (CLIENTS / "java" / "pom.xml").read_bytes()
        mark = self._libraries / f".complete-{hashlib.sha256(pom).hexdigest()[:16]}"
        if not mark.exists():
            run(
                [
                    "mvn", "-q", "-B", "-f", str(CLIENTS / "java" / "pom.xml"),
                    "dependency:copy-dependencies",
                    f"-DoutputDirectory={self._libraries}",
                ],
                timeout_s=600,
            )  # fmt: skip
            mark.touch()
        text = b"".join(source.read_bytes() for source in sources)
        key = hashlib.sha256(text).hexdigest()[:16]
        self._classes = cache_folder() / f"java-classes-{key}"
        if not self._classes.exists():
            run(
                ["javac", "-cp", f"{self._libraries}/*", "-d", str(self._classes)]
                + [str(source) for source in sources],
                timeout_s=120,
            )

    def command(self, main_class: str, *arguments: str) -> list[str]:
        path = f"{self._classes}:{self._libraries}/*"
        return ["java", "-Xmx256m", "-cp", path, main_class, *arguments]


class Pip:
    """The C++ core behind PyPI `rocketmq`."""

    name = "pip (C++ core)"

    def __init__(self) -> None:
        self._python = cache_folder() / "pip-0.4.4" / "bin" / "python"

    @staticmethod
    def missing() -> str | None:
        return None

    def prepare(self) -> None:
        folder = self._python.parents[1]
        mark = folder / ".complete"
        if mark.exists():
            return
        run([sys.executable, "-m", "venv", "--clear", str(folder)], timeout_s=120)
        install = [str(self._python), "-m", "pip", "install", "-q", PIP_REQUIREMENT]
        run(install, timeout_s=300)
        mark.touch()

    def command(self, *arguments: str) -> list[str]:
        return [str(self._python), str(CLIENTS / "pip_client.py"), *arguments]
