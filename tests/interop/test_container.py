"""Java's tools and clients against a container of three brokers."""

import os
import signal

import pytest

from tests.waiting import wait_until

from .conftest import prepared
from .drivers import driving
from .messages import digests
from .processes import serving
from .test_name_servers import brokers
from .toolchains import MQADMIN, Java, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAMES = ["broker-a", "broker-b", "broker-c"]
COUNT = 6_000


@pytest.fixture
def file_of(tmp_path):
    """Writes the file of a broker on free ports."""

    def write(name):
        path = tmp_path / f"{name}.conf"
        path.write_text(
            f"brokerName={name}\nlistenPort=0\nbindAddress=127.0.0.1\n"
            f"storePathRootDir={tmp_path / name}\nmappedFileSizeCommitLog=16777216\n"
        )
        return str(path)

    return write


@pytest.fixture
def container(file_of):
    paths = ":".join(file_of(name) for name in NAMES)
    settings = ["--set", "listenPort=0", "--set", "rmq.namesrv.listenPort=0"]
    with serving("container", "-b", paths, *settings) as server:
        yield server
        if server.is_running:
            assert server.stop() == 0


def pid_of(container, name):
    """The process of a broker."""
    parent = container.pid
    with open(f"/proc/{parent}/task/{parent}/children") as children:
        for pid in children.read().split():
            with open(f"/proc/{pid}/cmdline") as words:
                if f"{name}.conf" in words.read():
                    return int(pid)
    raise AssertionError(f"{name} does not run")


def admin(container, *arguments):
    java = prepared(Java())
    command = java.command(
        MQADMIN, arguments[0], "-n", container.namesrv, *arguments[1:]
    )
    return run(command, timeout_s=60)


def test_mqadmin_adds_and_removes_a_broker(container, file_of):
    where = "-c", container.address
    assert "success" in admin(container, "addBroker", *where, "-b", file_of("broker-d"))
    assert sorted(brokers(container.namesrv)) == [*NAMES, "broker-d"]
    again = admin(container, "addBroker", *where, "-b", file_of("broker-d"))
    assert "has already been added to current broker container" in again
    who = "-b", "DefaultCluster:broker-d:0"
    assert "success" in admin(container, "removeBroker", *where, *who)
    assert sorted(brokers(container.namesrv)) == NAMES
    assert "Broker not exist" in admin(container, "removeBroker", *where, *who)


def test_clients_lose_nothing_when_a_broker_is_killed(container, tmp_path):
    java, namesrv = prepared(Java()), container.namesrv
    made = admin(
        container,
        "updateTopic",
        "-c",
        "DefaultCluster",
        "-t",
        "Spread",
        "-r",
        "2",
        "-w",
        "2",
    )
    assert made.count("success") >= len(NAMES)
    wait_until(lambda: len(brokers(namesrv)) == len(NAMES), "all are registered")
    with (
        driving(
            java, tmp_path / "in", "push", namesrv, "Spread", 0, "group=Spread"
        ) as reader,
        driving(java, tmp_path / "out", "send", namesrv, "Spread", COUNT) as writer,
    ):
        reader.wait_ready()
        reader.wait_received(COUNT // 20)
        os.kill(pid_of(container, "broker-b"), signal.SIGKILL)
        assert writer.finish()["count"] == COUNT, writer.story()
        reader.wait_received(COUNT, 120)
        reader.finish()
    assert sorted(set(reader.digests)) == digests(range(COUNT))
    again = [line for line in container.lines if line.startswith("[broker-b] ready ")]
    assert len(again) == 2, "it was killed while they ran, and came back"
