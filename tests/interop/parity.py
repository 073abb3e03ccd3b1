"""Brokers for the scenarios of `tests/client`: of rmq and of Java, in processes.

`RemoteBroker` has what those of the parity table use of `BrokerThread`, over the wire.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import KEYS, TAGS
from rmq.protocol.records import StoredMessage
from rmq.testing.threads import send_request
from tests.waiting import wait_until

from . import wire
from .processes import broker_arguments, free_port, serving
from .test_name_servers import is_up, java_server
from .toolchains import JavaServers, OldJavaServers

SETTINGS = {
    "brokerName": "broker-test",
    "brokerIP1": "127.0.0.1",
    "messageDelayLevel": " ".join(["1s"] * 18),
    "enablePropertyFilter": "true",
    "traceTopicEnable": "true",
}
JAVA_SETTINGS = SETTINGS | {
    "mappedFileSizeCommitLog": 16 << 20,
    "mappedFileSizeTimerLog": 1 << 20,
}


class RemoteBroker:
    """A broker in another process."""

    def __init__(self, address: str, name_server: str) -> None:
        self.address = address
        self.name_server = name_server

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic; when this returns, the name server has its route."""
        wire.make_topic(self.address, name, queues)
        wait_until(lambda: self._queues(name) == queues, f"the route of {name}")

    def _queues(self, topic: str) -> int:
        route = wire.route(self.name_server, topic)
        return 0 if route is None else int(route["queueDatas"][0]["writeQueueNums"])

    def request(self, request: Command) -> Command:
        """Send a request over a new connection; return the answer."""
        return wire.call(self.address, request.code, request.ext_fields, request.body)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: str = "",
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Send a message; return its id. The topic may be new."""
        texts = {TAGS: tags, KEYS: keys, **(properties or {})}
        born_ms = time.time_ns() // 1_000_000
        answer = self.request(send_request(topic, body, texts, queue_id, born_ms))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer.ext_fields["msgId"]

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return every stored message of a topic, queue by queue."""
        queues = 0
        if wire.route(self.name_server, topic) is not None:
            queues = self._queues(topic)
        return wire.pull(self.address, topic, queues=queues)


@contextmanager
def rmq_broker(folder: Path) -> Iterator[RemoteBroker]:
    """Run a broker of rmq, with its name server."""
    texts = (f"{name}={value}" for name, value in SETTINGS.items())
    with serving(*broker_arguments(folder, *texts)) as running:
        yield RemoteBroker(running.address, running.namesrv)


@contextmanager
def java_broker(folder: Path, servers: JavaServers) -> Iterator[RemoteBroker]:
    """Run a name server and a broker of Java's."""
    ports = [free_port() for _ in range(2)]
    namesrv, address = (f"127.0.0.1:{port}" for port in ports)
    settings = {
        **JAVA_SETTINGS, "listenPort": ports[1], "namesrvAddr": namesrv,
        "storePathRootDir": folder / "store", "haListenPort": ports[1] + 1,
    }  # fmt: skip
    with ExitStack() as stack:
        for home, main_class, keys in (
            ("namesrv", "namesrv.NamesrvStartup", {"listenPort": ports[0]}),
            ("broker", "broker.BrokerStartup", settings),
        ):
            stack.enter_context(
                java_server(folder / home, main_class, keys, servers=servers)
            )
            if home == "namesrv":
                wait_until(lambda: is_up(namesrv), "Java's name server serves", 90)
        wait_until(
            lambda: wire.route(namesrv, SETTINGS["brokerName"]) is not None,
            "Java's broker is known",
            90,
        )
        yield RemoteBroker(address, namesrv)


def servers_of(name: str) -> JavaServers:
    """Return Java's servers of the version in a name."""
    (found,) = (each for each in (JavaServers(), OldJavaServers()) if each.name == name)
    return found


def broker_of(name: str, folder: Path) -> AbstractContextManager[RemoteBroker]:
    """Return the context in which the broker of this name runs."""
    return (
        rmq_broker(folder) if name == "rmq" else java_broker(folder, servers_of(name))
    )
