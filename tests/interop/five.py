"""The SDKs of RocketMQ 5.x, which speak gRPC, and Java's proxy that serves them.

Their driver programs have one command line:

    driver send|push|lite|simple ENDPOINTS TOPIC COUNT [name=value ...]

They report as the drivers of `drivers.py` do; `received` has number, digest, attempt
(from 1), at and due (ms since 1970; due is 0 without a time of delivery).

send: messages `first` … first + COUNT - 1 of a `kind`: normal, fifo (four message
groups), lite (lite topics lite0 to lite3 in turn), delay or recall (due `delay` ms
later; recall takes the odd ones back) or transaction (numbers divisible by 3 are
committed, the next rolled back, of the third the outcome is told when asked; goes on
until standard input ends). With `retry` a send is tried until it succeeds; `every` is a
pause after each in ms.
push: until standard input ends; `group`, `tags` or `sql`; attempts up to `fail` fail.
With `tls` (Java, Go, Python) it speaks TLS. Java and Go trust every server, Python the
`authority` in a file.
lite: as push, of the lite topics `lites` of a parent topic; at the end it reports
`taken`, the lite topics that it still has.
simple: receives until COUNT messages are acked; hidden for `invisible` seconds;
attempts up to `forget` are not acked; `change` is another time for the first attempts,
instead of the ack.
"""

import json
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from .toolchains import (
    CLIENTS,
    absent,
    alone_in,
    build_go,
    cache_folder,
    compile_java,
    download_jars,
    install_npm,
    install_pip,
    plain_environment,
    run,
)

FIVE = CLIENTS / "five"
ALL = frozenset({"push", "fail", "dead letters", "recall", "change"})
"""`settings again` is beyond these: a proxy that was restarted knows nobody, and it
answers a consumer with an error until the consumer sends its settings again. Java and
Node do so at once, Python and Go every five minutes, Rust never.
"""

START_S, STOP_S = 90, 30


class JavaSdk:
    """rocketmq-client-java: one jar with all that it needs."""

    name = "Java 5.2.0"
    can = ALL | {"settings again", "lite"}

    def __init__(self) -> None:
        self._libraries = cache_folder() / "java-sdk-5.2.0"
        self._classes = Path()

    @staticmethod
    def missing() -> str | None:
        return absent("java", "javac", "mvn")

    def prepare(self) -> None:
        download_jars(self._libraries, "5.2.0", "client-java")
        sources = [
            FIVE / "java" / "FiveDriver.java",
            CLIENTS / "java" / "Bodies.java",
        ]
        self._classes = compile_java("java-sdk-classes", self._libraries, sources)

    def driver(self, home: Path, *arguments: str) -> list[str]:
        path = f"{self._classes}:{self._libraries}/*"
        return [
            "java", "-Xmx256m", f"-Duser.home={home}", "-cp", path, "FiveDriver",
            *arguments,
        ]  # fmt: skip


class PythonSdk:
    """PyPI `rocketmq-python-client`."""

    name = "Python 5.1.2"
    can = ALL

    def __init__(self) -> None:
        self.python = cache_folder() / "python-sdk-5.1.2" / "bin" / "python"

    @staticmethod
    def missing() -> str | None:
        return None

    def prepare(self) -> None:
        install_pip(self.python, "rocketmq-python-client==5.1.2")

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [str(self.python), str(FIVE / "five_driver.py"), *arguments]


class NodeSdk:
    """npm `rocketmq-client-nodejs`."""

    name = "Node 1.0.8"
    can = ALL | {"settings again"}

    def __init__(self) -> None:
        self._folder = cache_folder() / "node-sdk-1.0.8"

    @staticmethod
    def missing() -> str | None:
        return absent("node", "npm")

    def prepare(self) -> None:
        install_npm(self._folder, FIVE / "node")

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return ["node", str(self._folder / "driver.js"), *arguments]


class GoSdk:
    """rocketmq-clients/golang/v5."""

    name = "Go 5.1.4"
    can = ALL

    def __init__(self) -> None:
        self._program = Path()

    @staticmethod
    def missing() -> str | None:
        return absent("go")

    def prepare(self) -> None:
        self._program = build_go("go-sdk-5.1.4", FIVE / "go")

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [str(self._program), *arguments]


class RustSdk:
    """Crate `rocketmq`: producers and simple consumers, no recall."""

    name = "Rust 5.0.0"
    can = frozenset[str]()

    def __init__(self) -> None:
        self._folder = cache_folder() / "rust-sdk-5.0.0"

    @staticmethod
    def missing() -> str | None:
        return absent("cargo")

    def prepare(self) -> None:
        """Cargo sees by the times of the files what is to be compiled again."""
        with alone_in(self._folder):
            shutil.copytree(FIVE / "rust", self._folder, dirs_exist_ok=True)
            run(["cargo", "build", "--quiet"], cwd=self._folder, timeout_s=900)

    def driver(self, home: Path, *arguments: str) -> list[str]:
        return [str(self._folder / "target" / "debug" / "driver"), *arguments]


SDKS = (JavaSdk, PythonSdk, NodeSdk, RustSdk, GoSdk)


class JavaProxy:
    """`rocketmq-proxy` in cluster mode; ready when `start` returns."""

    def __init__(self, home: Path, namesrv: str, port: int, cluster: str) -> None:
        self._home = home
        self.endpoints = f"127.0.0.1:{port}"
        self._libraries = cache_folder() / "java-proxy-5.5.0"
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True, exist_ok=True)
        self._settings = home / "rmq-proxy.json"
        settings = {
            "rocketMQClusterName": cluster,
            "namesrvAddr": namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port - 1,
        }
        self._settings.write_text(json.dumps(settings))

    @staticmethod
    def missing() -> str | None:
        return absent("java", "mvn")

    def start(self) -> None:
        download_jars(self._libraries, "5.5.0", "proxy")
        with (self._home / "output").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    "java", "-Xms128m", "-Xmx384m", f"-Duser.home={self._home}",
                    f"-Drocketmq.home.dir={self._home}", "-cp", f"{self._libraries}/*",
                    "org.apache.rocketmq.proxy.ProxyStartup",
                    "-pc", str(self._settings), "-pm", "cluster",
                ],
                cwd=self._home,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=plain_environment()
                | {"HOME": str(self._home), "RMQ_PROXY_HOME": str(self._home)},
            )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not self._listens():
            story = (self._home / "output").read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"the proxy ended\n{story}"
            assert time.monotonic() < deadline, f"not ready\n{story}"
            time.sleep(0.2)

    def _listens(self) -> bool:
        host, _, port = self.endpoints.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def group_body(group: str, **settings: Any) -> bytes:
    """A consumer group as request 200 takes it."""
    return json.dumps({"groupName": group, **settings}).encode()
