"""A name server with 1,000 brokers of 2,000 topics each: registering and asking.

Limits: a full registration 20 ms of CPU, a route query 30 µs (through the handler, so
with header and answer, without the socket).
"""

from inspect import isawaitable

import pytest
import trio

from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.handlers import NameServerHandlers, NameServerParts
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.registration import Caller
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from rmq.testing import ManualClock

BROKERS, TOPICS = 1_000, 2_000
CALLER = type("Peer", (), {"local_address": "10.0.0.9:9876", "is_open": True})()


def body(counter):
    names = [f"topic-of-some-length-{n}" for n in range(TOPICS)]
    wrapper = TopicConfigAndMappingSerializeWrapper(
        data_version=DataVersion(counter=counter),
        topic_config_table={n: TopicConfig(topic_name=n) for n in names},
    )
    return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode()


def registration(number, data):
    request = Command.request(RequestCode.REGISTER_BROKER, body=data)
    request.ext_fields = {
        "brokerName": f"broker-{number}",
        "brokerAddr": f"10.0.{number // 250}.{number % 250}:10911",
        "clusterName": "DefaultCluster",
        "haServerAddr": f"10.0.{number // 250}.{number % 250}:10912",
        "brokerId": "0",
    }
    return request


@pytest.fixture(scope="module")
def brokers(request):
    """A few are enough where nothing is measured."""
    return 10 if request.config.getoption("benchmark_disable") else BROKERS


@pytest.fixture(scope="module")
def handlers(tmp_path_factory, brokers):
    config = NamesrvConfig()
    kv = KVConfig(tmp_path_factory.mktemp("n") / "kvConfig.json", ManualClock())
    routes = RouteTable(lambda: 0)
    parts = NameServerParts(
        config,
        routes,
        kv,
        lambda told, _: told,
        lambda: 0,
        NamesrvListenConfig(),
        lambda _: Caller("10.0.0.1"),
    )
    handlers = NameServerHandlers(parts)
    data = body(1)
    for number in range(brokers):
        register(handlers, registration(number, data))
    return handlers


def register(handlers, request):
    """A large registration is read in steps, so that others are served between."""
    answer = handlers.register_broker(request, CALLER)
    assert isawaitable(answer)

    async def steps():
        await answer

    trio.run(steps)


@pytest.mark.parametrize("changes", [False, True], ids=["same", "changed"])
def bench_registration(benchmark, handlers, changes):
    bodies = [body(2), body(3) if changes else body(2)]
    turn = [0]

    def register_once():
        turn[0] += 1
        request = registration(7, bodies[turn[0] % 2])
        register(handlers, decode(encode(request)))

    benchmark(register_once)


def bench_route(benchmark, handlers, brokers):
    request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    request.ext_fields = {"topic": "topic-of-some-length-7"}
    assert len(handlers.route(request, CALLER).body) > 100 * brokers
    benchmark(handlers.route, request, CALLER)


def bench_route_made_anew(benchmark, handlers):
    request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    request.ext_fields = {"topic": "topic-of-some-length-7"}

    def ask():
        handlers.answers.discard_topic("topic-of-some-length-7")
        handlers.route(request, CALLER)

    benchmark(ask)
