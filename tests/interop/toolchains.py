"""The clients' toolchains, installed from their registries into a cache outside the
tree.

`RMQ_INTEROP_CACHE` says where (default: rmq-interop in the user's cache folder).  A
toolchain that is missing on the machine is reported as not run; one that is present and
cannot be prepared is a failure.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CLIENTS = Path(__file__).parent / "clients"
PIP_REQUIREMENT = "rocketmq==0.4.4"
COMMON = frozenset({"create", "async", "oneway", "batch", "orderly", "pull"})
LATER = frozenset({"fail alone", "dead letters", "transaction", "sql", "suspend"})
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


def absent(*tools: str) -> str | None:
    """Return the names of the tools this machine lacks."""
    names = [tool for tool in tools if not shutil.which(tool)]
    return f"no {' and no '.join(names)} on this machine" if names else None


def digest_of(files: list[Path]) -> str:
    text = b"".join(file.read_bytes() for file in files)
    return hashlib.sha256(text).hexdigest()[:16]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Let nobody else fill this folder of the cache: tests run beside each other."""
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def download_jars(
    folder: Path, version: str, *artifacts: str, project: str = "java"
) -> None:
    """Fetch artifacts of RocketMQ with all that they need, once.

    The file pom.xml of the `project` asks for them.
    """
    mark = folder / f".complete-{'-'.join(artifacts)}"
    with alone_in(folder):
        if mark.exists():
            return
        for artifact in artifacts:
            run(
                [
                    "mvn", "-q", "-B", "-f", str(CLIENTS / project / "pom.xml"),
                    "dependency:copy-dependencies", f"-DoutputDirectory={folder}",
                    f"-Drocketmq.artifact={artifact}", f"-Drocketmq.version={version}",
                ],
                timeout_s=600,
            )  # fmt: skip
        mark.touch()


def compile_java(name: str, libraries: Path, sources: list[Path]) -> Path:
    """Compile programs against a folder of jars, once; the folder of their classes."""
    classes = cache_folder() / f"{name}-{digest_of(sources)}"
    with alone_in(classes):
        if not classes.exists():
            run(
                ["javac", "-cp", f"{libraries}/*", "-d", str(classes)]
                + [str(source) for source in sources],
                timeout_s=120,
            )
    return classes


def install_pip(python: Path, requirement: str) -> None:
    """Make the environment of this Python with a package, once."""
    folder = python.parents[1]
    mark = folder / ".complete"
    with alone_in(folder):
        if mark.exists():
            return
        run([sys.executable, "-m", "venv", "--clear", str(folder)], timeout_s=120)
        run([str(python), "-m", "pip", "install", "-q", requirement], timeout_s=300)
        mark.touch()


def install_npm(folder: Path, sources: Path) -> None:
    """Install what package.json of these sources asks for, once; copy the driver."""
    folder.mkdir(exist_ok=True)
    mark = folder / ".complete"
    with alone_in(folder):
        if not mark.exists():
            shutil.copy(sources / "package.json", folder)
            install = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
            run(install, cwd=folder, timeout_s=300)
            mark.touch()
        shutil.copy(sources / "driver.js", folder)


def build_go(name: str, sources: Path) -> Path:
    """Build the driver of these sources, once; its path."""
    files = sorted(sources.iterdir())
    folder = cache_folder() / f"{name}-{digest_of(files)}"
    program = folder / "driver"
    with alone_in(folder):
        if not program.exists():
            folder.mkdir(exist_ok=True)
            for file in files:
                shutil.copy(file, folder)
            run(["go", "mod", "tidy"], cwd=folder, timeout_s=300)
            run(["go", "build", "-o", "driver", "."], cwd=folder, timeout_s=300)
    return program


class Java:
    """Java programs of `clients/java` and mqadmin."""

    version = "5.5.0"
    can = COMMON | LATER | {"vip", "binary", "v2", "namespace", "reply", "pop"}
    artifacts: tuple[str, ...] = ("tools", "filter")
    left_out: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name = f"Java {self.version}"
        self._libraries = cache_folder() / f"java-{self.version}"
        self._classes = Path()

    @staticmethod
    def missing() -> str | None:
        return absent("java", "javac", "mvn")

    def prepare(self) -> None:
        download_jars(self._libraries, self.version, *self.artifacts)
        sources = sorted((CLIENTS / "java").glob("*.java"))
        sources = [each for each in sources if each.name not in self.left_out]
        name = f"java-classes-{self.version}"
        self._classes = compile_java(name, self._libraries, sources)

    def command(self, main_class: str, *arguments: str) -> list[str]:
        path = f"{self._classes}:{self._libraries}/*"
        return ["java", "-Xmx256m", "-cp", path, main_class, *arguments]

    def driver(self, home: Path, *arguments: str) -> list[str]:
        command = self.command("Driver", *arguments)
        properties = [f"-Duser.home={home}"]
        if "binary=true" in arguments:
            properties.append("-Drocketmq.serialize.type=ROCKETMQ")
        if "v2=true" in arguments:
            properties.append("-Dcom.rocketmq.heartbeat.v2=true")
        return [command[0], *properties, *command[1:]]


class OldJava(Java):
    """The last client of the 4.x line; its evaluator of selectors is not published."""

    version = "4.9.8"
    artifacts = ("tools",)
    left_out = ("Retries.java", "Selectors.java")
    can = Java.can - {"v2", "pop"}


class JavaServers:
    """Java's own broker and name server."""

    version = "5.5.0"
    files_of_home: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.name = f"Java {self.version}"
        self._libraries = cache_folder() / f"java-servers-{self.version}"

    @staticmethod
    def missing() -> str | None:
        return absent("java", "mvn")

    def prepare(self) -> None:
        download_jars(self._libraries, self.version, "broker", "namesrv")

    def command(
        self, home: Path, main_class: str, config: Path, heap_mib: int = 512
    ) -> list[str]:
        return [
            "java", f"-Xms{heap_mib // 2}m", f"-Xmx{heap_mib}m", f"-Duser.home={home}",
            *self.options, f"-Drocketmq.home.dir={home}",
            "-cp", f"{self._libraries}/*",
            f"org.apache.rocketmq.{main_class}", "-c", str(config),
        ]  # fmt: skip


class QuickJavaServers(JavaServers):
    """Half the CPU of a start, for tests that start many; not to measure anything."""

    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class OldJavaServers(JavaServers):
    """The last servers of the 4.x line that are published; those of 4.9.8 are not."""

    version = "4.9.7"
    files_of_home = ("logback_namesrv.xml", "logback_broker.xml")
    options = (
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
        "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    )
    """What they need to unmap files under Java 9 and later."""


class ApacheTests:
    """Apache's published integration tests, against brokers that run already."""

    version = "5.5.0"

    def __init__(self) -> None:
        asked = digest_of([CLIENTS / "apache" / "pom.xml"])
        self._libraries = cache_folder() / f"apache-tests-{self.version}-{asked}"
        self._classes = Path()

    @staticmethod
    def missing() -> str | None:
        return absent("java", "javac", "mvn")

    def prepare(self) -> None:
        download_jars(self._libraries, self.version, "test", project="apache")
        sources = sorted((CLIENTS / "apache").glob("*.java"))
        name = f"apache-tests-classes-{self.version}"
        self._classes = compile_java(name, self._libraries, sources)

    def classes(self) -> list[str]:
        """The names of all classes of tests."""
        (jar,) = self._libraries.glob("rocketmq-test-*-tests.jar")
        with zipfile.ZipFile(jar) as content:
            names = [name for name in content.namelist() if name.endswith("IT.class")]
        return sorted(each.removesuffix(".class").replace("/", ".") for each in names)

    def command(
        self, home: Path, name_server: str, brokers: Sequence[str], *arguments: str
    ) -> list[str]:
        """Run a class of tests, named by the first argument, without the others."""
        return [
            "java", "-Xmx512m", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
            f"-Drmq.nameServer={name_server}", f"-Drmq.brokers={','.join(brokers)}",
            "-cp", f"{self._classes}:{self._libraries}/*", "RunTests", *arguments,
        ]  # fmt: skip


class JavaExamples:
    """Java's own benchmark clients."""

    def __init__(self) -> None:
        self._libraries = cache_folder() / "java-example-5.5.0"

    def prepare(self) -> None:
        download_jars(self._libraries, "5.5.0", "example")

    def command(self, home: Path, main_class: str, *arguments: str) -> list[str]:
        return [
            "java", "-Xms256m", "-Xmx512m", f"-Duser.home={home}",
            "-Duser.language=en", "-cp", f"{self._libraries}/*",
            f"org.apache.rocketmq.example.{main_class}", *arguments,
        ]  # fmt: skip


class Pip:
    """The C++ core behind PyPI `rocketmq`.

    A failure fails what was pulled with it too, before a listener saw it.
    """

    name = "pip (C++ core)"
    can = COMMON

    def __init__(self) -> None:
        self._python = cache_folder() / "pip-0.4.4" / "bin" / "python"

    @staticmethod
    def missing() -> str | None:
        return None

    def prepare(self) -> None:
        install_pip(self._python, PIP_REQUIREMENT)

    def command(self, *arguments: str) -> list[str]:
        return [str(self._python), str(CLIENTS / "pip_client.py"), *arguments]

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [str(self._python), str(CLIENTS / "pip_driver.py"), *arguments]


class Go:
    """apache/rocketmq-client-go v2; its replies have no body."""

    name = "Go 2.1.2"
    can = COMMON | LATER | {"namespace"}

    def __init__(self) -> None:
        self._program = Path()

    @staticmethod
    def missing() -> str | None:
        return absent("go")

    def prepare(self) -> None:
        self._program = build_go("go-2.1.2", CLIENTS / "go")

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [str(self._program), *arguments]


class Node:
    """ali-ons of npm: promises only.

    It knows neither batches, order nor pull, and gives up on a topic without a route.
    """

    name = "Node ali-ons 3.12.0"
    can = frozenset({"async", "namespace", "fail alone", "dead letters"})

    def __init__(self) -> None:
        self._folder = cache_folder() / "node-3.12.0"

    @staticmethod
    def missing() -> str | None:
        return absent("node", "npm")

    def prepare(self) -> None:
        install_npm(self._folder, CLIENTS / "node")

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return ["node", str(self._folder / "driver.js"), *arguments]


class Rmq:
    """`rmq.client`, the client of this project."""

    name = "rmq"
    can = COMMON | LATER | {"binary", "namespace", "reply", "pop"}

    @staticmethod
    def missing() -> str | None:
        return None

    def prepare(self) -> None:
        """Nothing: it is here."""

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [sys.executable, str(CLIENTS / "rmq_driver.py"), *arguments]


CLIENT_TOOLCHAINS = (Rmq, Java, OldJava, Go, Pip, Node)
