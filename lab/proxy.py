"""Java's gRPC proxy 5.5.0 on rmq, and on Java's name server and broker: messages/s.

Both stand side by side, each with a proxy and a client of the Java SDK 5.2.0, which
sends messages of 128 B with 64 on their way, and then receives 32 at a time with a
simple consumer in 4 threads and acks each. They play in turns after a warm-up; the
figures are medians. All of it shares this machine.

    python lab/proxy.py [--rounds 5] [--messages 10000]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lab.compare_java import end_children_on_sigterm
from rmq.protocol.codes import RequestCode
from tests.interop import wire
from tests.interop.five import JavaProxy, JavaSdk, group_body
from tests.interop.processes import free_port
from tests.interop.test_five import CLUSTER, JavaBelow, Rmq
from tests.interop.toolchains import (
    JavaServers,
    cache_folder,
    compile_java,
)

TOPIC, GROUP, QUEUES = "Load", "loaders", 8
SOURCE = ROOT / "bench" / "load" / "ProxyLoad.java"


class Client:
    """The program that sends and receives."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._read()

    def _read(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line[:1].isdigit() or line == "ready\n":
                return line
        raise SystemExit("the client of the proxy has ended")

    def play(self) -> tuple[int, int]:
        """Messages a second: sent; received and acked."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        sent, received = self._read().split()
        return int(sent), int(received)


@contextmanager
def client(below: Rmq | JavaBelow, home: Path, messages: int) -> Iterator[Client]:
    """A client of a new proxy for these servers."""
    proxy = JavaProxy(home, below.namesrv, free_port(), CLUSTER)
    libraries = cache_folder() / "java-sdk-5.2.0"
    classes = compile_java("proxy-load", libraries, [SOURCE])
    try:
        proxy.start()
        wire.make_topic(below.address, TOPIC, QUEUES, "+message.type=NORMAL")
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        wire.call(below.address, code, body=group_body(GROUP))
        command = [
            "java", "-Xmx512m", f"-Duser.home={home}", "-cp",
            f"{classes}:{libraries}/*", "ProxyLoad", proxy.endpoints, TOPIC, GROUP,
            str(messages), "1000",
        ]  # fmt: skip
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Client(process)
            finally:
                process.kill()
    finally:
        proxy.stop()


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-ups", type=int, default=2)
    parser.add_argument("--messages", type=int, default=10_000, help="of a round")
    options = parser.parse_args()
    end_children_on_sigterm()
    JavaServers().prepare()
    JavaSdk().prepare()
    with tempfile.TemporaryDirectory(prefix="rmq-proxy-") as name, ExitStack() as up:
        folder = Path(name)
        (folder / "java").mkdir()
        java, rmq = JavaBelow(folder / "java"), Rmq(folder / "rmq")
        up.enter_context(closing(java))
        up.callback(rmq.stop)
        clients = {}
        for kind, below in (("Java", java), ("rmq", rmq)):
            below.start()
            home = folder / f"proxy-{kind}"
            clients[kind] = up.enter_context(client(below, home, options.messages))
        figures: dict[str, list[tuple[int, int]]] = {kind: [] for kind in clients}
        for number in range(options.warm_ups + options.rounds):
            for kind, each in clients.items():
                played = each.play()
                print(f"  {kind:5} {number} {played}", flush=True)
                if number >= options.warm_ups:
                    figures[kind].append(played)
    for kind, rounds in figures.items():
        sent, received = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"{kind:5} sent a second {sent:>10,.0f}")
        print(f"{kind:5} received and acked a second {received:>10,.0f}")


if __name__ == "__main__":
    main()
