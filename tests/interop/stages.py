"""Stages for the 5.x SDKs: Java's unmodified proxy, and rmq or Java's servers below it.

RMQ_INTEROP_BROKER=java puts Java's own servers there, to see whose fault a failure is.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from tests.waiting import wait_until

from . import wire
from .drivers import driving
from .five import JavaProxy, group_body
from .processes import Server, broker_arguments, free_port
from .test_name_servers import is_up, java_server

NAME, CLUSTER = "broker-five", "DefaultCluster"
QUEUES, COUNT = 4, 60
SETTLED_S = 1
"""The proxy serves a consumer only after it has got the consumer's settings."""

SETTINGS: dict[str, object] = {
    "brokerName": NAME,
    "brokerClusterName": CLUSTER,
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 2_000,
}


class Rmq:
    """Name server and broker on fixed ports, so that they can be started again."""

    def __init__(self, folder, settings=SETTINGS):
        self._port, namesrv_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.address = f"127.0.0.1:{self._port}"
        ports = {"listenPort": self._port, "rmq.namesrv.listenPort": namesrv_port}
        settings = [f"{key}={value}" for key, value in (settings | ports).items()]
        self._arguments = broker_arguments(folder, *settings)
        self._server = None

    def start(self):
        self._server = Server(*self._arguments)

    def stop(self):
        if self._server is not None:
            assert self._server.stop() == 0
            self._server = None


class JavaBelow:
    """Java's name server and broker in the place of rmq."""

    def __init__(self, folder, settings=SETTINGS):
        self._folder, self._settings = folder, settings
        self._ports = free_port(), free_port()
        self.namesrv, self.address = (f"127.0.0.1:{port}" for port in self._ports)
        self._namesrv, self._broker = ExitStack(), ExitStack()

    def start(self):
        namesrv_port, port = self._ports
        if not is_up(self.namesrv):
            home = self._folder / "namesrv"
            self._namesrv.enter_context(
                java_server(
                    home, "namesrv.NamesrvStartup", {"listenPort": namesrv_port}
                )
            )
            wait_until(lambda: is_up(self.namesrv), "Java's name server serves", 60)
        settings = self._settings | {
            "listenPort": port, "haListenPort": port - 1, "brokerIP1": "127.0.0.1",
            "namesrvAddr": self.namesrv, "storePathRootDir": self._folder / "store",
        }  # fmt: skip
        self._broker.enter_context(
            java_server(self._folder / "broker", "broker.BrokerStartup", settings)
        )
        wait_until(
            lambda: wire.route(self.namesrv, CLUSTER) is not None, "registered", 90
        )

    def stop(self):
        """The broker alone; the name server goes with the whole."""
        self._broker.close()

    def close(self):
        self._broker.close()
        self._namesrv.close()


@contextmanager
def servers_below(folder, settings=SETTINGS) -> Iterator[Rmq | JavaBelow]:
    """The servers that the proxy serves from."""
    is_java = os.environ.get("RMQ_INTEROP_BROKER") == "java"
    made = (JavaBelow if is_java else Rmq)(folder, settings)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        if is_java:
            made.close()


@contextmanager
def proxy_over(below, home) -> Iterator[JavaProxy]:
    if missing := JavaProxy.missing():
        pytest.skip(f"not run: {missing}")
    made = JavaProxy(home, below.namesrv, free_port(), CLUSTER)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Itself:
    """The broker, which speaks gRPC itself."""

    def __init__(self, below):
        self.endpoints = below.address


def itself(below) -> Itself:
    if isinstance(below, JavaBelow):
        pytest.skip("not run: Java's broker needs a proxy")
    return Itself(below)


class Stage:
    """One SDK with a topic and a group that nobody used before."""

    def __init__(self, client, proxy, below, home, name):
        self._client, self._proxy, self._home = client, proxy, home
        self.below = below
        self.name = name

    def make(self, kind="NORMAL", **group_settings):
        address = self.below.address
        wire.make_topic(address, self.name, QUEUES, f"+message.type={kind}")
        body = group_body(self.name, **group_settings)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = wire.call(address, code, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def _driving(self, scenario, count, options):
        texts = [f"{name}={value}" for name, value in options.items()]
        return driving(
            self._client, self._home / scenario, scenario, self._proxy.endpoints,
            self.name, count, *texts,
        )  # fmt: skip

    def sending(self, count=COUNT, **options):
        return self._driving("send", count, options)

    def send(self, count=COUNT, **options):
        with self.sending(count, **options) as producer:
            assert producer.finish()["count"] == count, producer.story()

    def consuming(self, count=COUNT, **options):
        """A push consumer; an SDK without one receives `count` messages instead."""
        scenario = "push" if "push" in self._client.can else "simple"
        return self._driving(scenario, count, {"group": self.name, **options})

    def receiving(self, count=COUNT, **options):
        return self._driving("simple", count, {"group": self.name, **options})

    @property
    def committed(self):
        return wire.committed(self.below.address, self.name, self.name, QUEUES)


def stage_name(request):
    """The name of a test as the name of a topic."""
    text = request.node.name.removeprefix("test_")
    return "".join(each if each.isalnum() else "-" for each in text)


def settled(consumer):
    consumer.wait_ready()
    time.sleep(SETTLED_S)
    return consumer
