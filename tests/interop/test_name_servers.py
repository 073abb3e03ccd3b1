"""Java and rmq mixed: one's broker with the other's name server, and all clients."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .drivers import driving, send
from .messages import digests
from .processes import broker_arguments, free_port, serving
from .toolchains import MQADMIN, Java, JavaServers, plain_environment, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = "broker-mixed"
QUEUES = 4
COUNT = 100
STOP_TIMEOUT_S = 60


@contextmanager
def java_server(home, main_class, settings, servers=None, inside=()):
    """A server of Java's with this configuration; stopped by SIGTERM at the end.

    `inside`: a command that starts it.
    """
    servers = prepared(servers or JavaServers())
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in servers.files_of_home:
        (home / "conf" / name).write_text("<configuration/>")
    config = home / "server.conf"
    config.write_text("".join(f"{k}={v}\n" for k, v in settings.items()))
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            [*inside, *servers.command(home, main_class, config)],
            cwd=home,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=plain_environment() | {"HOME": str(home)},
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def is_up(address):
    try:
        wire.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    except (OSError, AssertionError):
        return False
    return True


def brokers(namesrv):
    answer = wire.call(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.code == ResponseCode.SUCCESS
    text = answer.body.decode().replace("{0:", '{"0":')  # Java leaves the quotes out
    return {
        name: data["brokerAddrs"]["0"]
        for name, data in json.loads(text)["brokerAddrTable"].items()
    }


@contextmanager
def rmq_broker_with_java_name_server(folder):
    namesrv = f"127.0.0.1:{free_port()}"
    settings = {"listenPort": namesrv.rpartition(":")[2]}
    with java_server(folder / "namesrv", "namesrv.NamesrvStartup", settings):
        wait_until(lambda: is_up(namesrv), "the name server listens")
        arguments = broker_arguments(folder / "store", f"brokerName={NAME}")
        with serving(*arguments, "-n", namesrv) as broker:
            yield namesrv, broker.address
            assert broker.stop() == 0
        wait_until(lambda: not brokers(namesrv), "the broker has unregistered", 5)


@contextmanager
def java_broker_with_rmq_name_server(folder):
    port = free_port()
    address = f"127.0.0.1:{port}"
    settings = {
        "brokerName": NAME, "brokerIP1": "127.0.0.1", "listenPort": port,
        "haListenPort": port - 1, "storePathRootDir": folder / "store",
        "mappedFileSizeCommitLog": 16 << 20, "timerWheelEnable": "false",
    }  # fmt: skip
    with serving("namesrv", "--set", "listenPort=0") as server:
        namesrv = server.namesrv
        settings["namesrvAddr"] = namesrv
        with java_server(folder / "broker", "broker.BrokerStartup", settings):
            wait_until(lambda: brokers(namesrv) == {NAME: address}, "registered", 60)
            yield namesrv, address
        assert brokers(namesrv) == {}
        assert server.stop() == 0


MIXES = {
    "rmq broker, Java name server": rmq_broker_with_java_name_server,
    "Java broker, rmq name server": java_broker_with_rmq_name_server,
}


@pytest.fixture(scope="module", params=MIXES)
def mix(request, tmp_path_factory):
    """Addresses of a name server and of the broker that registered with it."""
    with MIXES[request.param](tmp_path_factory.mktemp("mix")) as addresses:
        yield addresses


def test_send_and_push(client, mix, tmp_path):
    namesrv, broker = mix
    topic = "Mixed-" + "".join(each for each in client.name if each.isalnum())
    wire.make_topic(broker, topic, QUEUES)
    wait_until(lambda: wire.route(namesrv, topic) is not None, "route")
    with driving(
        client, tmp_path / "in", "push", namesrv, topic, 0, f"group={topic}"
    ) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, namesrv, topic, COUNT)
        consumer.wait_received(COUNT, 90)
        consumer.finish()
    assert sorted(set(consumer.digests)) == digests(range(COUNT))


def test_mqadmin(mix):
    namesrv, broker = mix
    java = prepared(Java())

    def admin(*arguments):
        command = java.command(MQADMIN, arguments[0], "-n", namesrv, *arguments[1:])
        return run(command, timeout_s=60)

    assert NAME in admin("clusterList")
    assert "success" in admin(
        "updateTopic", "-b", broker, "-t", "Made", "-r", "3", "-w", "3"
    )
    time.sleep(0.5)
    route = admin("topicRoute", "-t", "Made")
    assert broker in route
    assert '"writeQueueNums":3' in route


def test_commands(mix):
    """Our own tools, which are clients: sends, looks, a group, lines as they come."""
    namesrv, broker = mix
    topic = "Commands"
    wire.make_topic(broker, topic, QUEUES)
    wait_until(lambda: wire.route(namesrv, topic) is not None, "route")

    def rmq(command, *words):
        line = [sys.executable, "-m", "rmq", command, *words, "-n", namesrv]
        return run(line, timeout_s=60)

    for number in range(3):
        rmq("send", topic, f"body {number}", "-t", "A", "-q", str(number))
    rmq("send", topic, "late", "--delay", "1s")
    every = ["-f", "%v\n", "--from", "first"]
    assert sorted(rmq("consume", topic, "-e", "-t", "A", *every).split("\n")[:-1]) == [
        "body 0", "body 1", "body 2",
    ]  # fmt: skip
    assert len(rmq("consume", topic, "-c", "4", *every).splitlines()) == 4
    taken = rmq("consume", topic, "-g", "commands", "-c", "4", "-f", "%v\n")
    assert "body 1" in taken
    assert "body" not in rmq("consume", topic, "-g", "commands", "-e", "-f", "%v\n")
    assert "messages in" in rmq("bench", "-t", topic, "--messages", "100")
    assert "messages in" in rmq("bench", "-t", topic, "--consume")
