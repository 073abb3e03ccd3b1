"""Unmodified clients against one rmq process that nobody configured.

Prints a table client × scenario; a toolchain that the machine lacks is shown as not
run.
"""

import hashlib
import re
import subprocess
import time
from pathlib import Path

import pytest

from rmq.protocol.records import decode_stored
from tests.history import History, Place, Read

from .processes import broker_arguments, serving
from .toolchains import MQADMIN, Java, Pip, plain_environment, run

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

MESSAGES = 10_000
RESULTS: dict[tuple[str, str], str] = {}


@pytest.fixture(scope="module", autouse=True)
def results():
    yield
    width = max((len(client) for client, _ in RESULTS), default=0)
    print()
    for (client, scenario), outcome in sorted(RESULTS.items()):
        print(f"{client:<{width}}  {scenario:<28}  {outcome}")


@pytest.fixture(scope="module", params=[Java, Pip], ids=["java", "pip"])
def client(request):
    return prepared(request.param())


@pytest.fixture(scope="module")
def java():
    return prepared(Java())


def prepared(toolchain):
    missing = toolchain.missing()
    if missing:
        RESULTS[toolchain.name, "every scenario"] = f"not run: {missing}"
        pytest.skip(f"not run: {missing}")
    toolchain.prepare()
    return toolchain


def passed(client, scenario):
    RESULTS[client.name, scenario] = "passed"


def body_of(number: int) -> bytes:
    return f"message {number} 日本語 é 😀 {'x' * (number % 200)}".encode()


def digests(count: int) -> list[str]:
    return sorted(
        hashlib.sha256(
            b"\0".join((body_of(n), b"Tag%d" % (n % 3), b"Key%d" % n))
        ).hexdigest()
        for n in range(count)
    )


def producer_command(client, namesrv: str, topic: str, count: int) -> list[str]:
    if isinstance(client, Java):
        return client.command("QuickProducer", namesrv, topic, str(count))
    return client.command("produce", namesrv, topic, str(count))


def consumer_command(client, namesrv: str, topic: str, count: int) -> list[str]:
    if isinstance(client, Java):
        return client.command(
            "QuickPushConsumer", namesrv, topic, str(count), "interop-java", "90"
        )
    return client.command("consume", namesrv, topic, str(count))


def test_ten_thousand_messages_through_a_new_topic(client, tmp_path):
    with serving(*broker_arguments(tmp_path)) as server:
        consumer = subprocess.Popen(
            consumer_command(client, server.namesrv, "Interop", MESSAGES),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=plain_environment(),
        )
        try:
            command = producer_command(client, server.namesrv, "Interop", MESSAGES)
            assert f"sent {MESSAGES}" in run(command, timeout_s=120)
            output, _ = consumer.communicate(timeout=150)
        finally:
            consumer.kill()
        lines = output.split("\n")
        received = sorted(line for line in lines if re.fullmatch("[0-9a-f]{64}", line))
        assert f"received {MESSAGES}" in output
        assert received == digests(MESSAGES)
        assert server.stop() == 0
        assert not (tmp_path / "abort").exists()
    passed(client, "10,000 messages, new topic")


def admin(java, namesrv: str, *arguments: str) -> str:
    command = java.command(MQADMIN, arguments[0], "-n", namesrv, *arguments[1:])
    return run(command, timeout_s=60)


def test_mqadmin(java, tmp_path):
    with serving(*broker_arguments(tmp_path, "brokerName=smoke")) as server:
        made = admin(
            java, server.namesrv,
            "updateTopic", "-b", server.address, "-t", "Made", "-r", "4", "-w", "4",
        )  # fmt: skip
        assert "success" in made
        clusters = admin(java, server.namesrv, "clusterList")
        assert "smoke" in clusters
        assert server.address in clusters
        assert "V5_5_0" in clusters
        time.sleep(0.5)
        assert server.address in admin(java, server.namesrv, "topicRoute", "-t", "Made")
        status = admin(java, server.namesrv, "topicStatus", "-t", "Made")
        assert len(re.findall(r"^smoke\s+\d", status, re.MULTILINE)) == 4
    passed(java, "mqadmin")


def test_two_brokers_of_one_cluster(java, tmp_path):
    def broker(name: str):
        return serving(
            *broker_arguments(tmp_path / name, f"brokerName={name}"),
            "-n",
            namesrv.namesrv,
        )

    with (
        serving("namesrv", "--set", "listenPort=0") as namesrv,
        broker("broker-a") as first,
        broker("broker-b") as second,
    ):
        for server in (first, second):
            admin(
                java, namesrv.namesrv,
                "updateTopic", "-b", server.address, "-t", "Spread", "-r", "4", "-w",
                "4",
            )  # fmt: skip
        time.sleep(0.5)
        sent = run(producer_command(java, namesrv.namesrv, "Spread", 200), timeout_s=60)
        assert "sent 200 brokers broker-a,broker-b" in sent
        assert first.stop() == 0
        route = admin(java, namesrv.namesrv, "topicRoute", "-t", "Spread")
        assert "broker-a" not in route
        assert "broker-b" in route
        second.kill()
        deadline = time.monotonic() + 10
        while "broker-b" in admin(java, namesrv.namesrv, "clusterList"):
            assert time.monotonic() < deadline
    passed(java, "two brokers, route follows")


def test_kill_nine_under_load_keeps_what_was_acknowledged(java, tmp_path):
    settings = ["mappedFileSizeCommitLog=1048576", "mappedFileSizeConsumeQueue=20000"]
    with serving(*broker_arguments(tmp_path, *settings)) as server:
        producer = subprocess.Popen(
            java.command("QuickProducer", server.namesrv, "Killed", "100000", "each"),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=plain_environment(),
        )
        acked, history = 0, History()
        history.invoke(body_of(0))
        assert producer.stdout is not None
        for line in producer.stdout:
            if line.startswith("acked"):
                _, number, _, queue_id, offset = line.split()
                place = Place("Killed", int(queue_id), int(offset))
                history.answer(body_of(int(number)), 0, place)
                history.invoke(body_of(int(number) + 1))  # one after the other
                acked += 1
            if acked == 5000:
                server.kill()
            if line.startswith("failed"):
                break
        producer.kill()
        producer.communicate()
    assert acked >= 5000
    assert history.faults(read_back(tmp_path, settings)) == []
    passed(java, "kill -9 under load")


def read_back(folder: Path, settings: list[str]) -> list[Read]:
    """Bodies and places of everything that a restarted store serves."""
    from rmq.config.option import build
    from rmq.core.clock import SystemClock
    from rmq.store.config import StoreConfig
    from rmq.store.message_store import MessageStore

    values = dict(setting.split("=") for setting in settings)
    values["storePathRootDir"] = str(folder)
    store = MessageStore.open(
        build(StoreConfig, values), clock=SystemClock(), store_host=bytes(8)
    )
    found: list[Read] = []
    try:
        for queue_id in range(4):
            offset = 0
            while (result := store.reads.get("Killed", queue_id, offset, 32)).body:
                for record in decode_stored(result.body):
                    assert record.queue_offset == offset
                    found.append((record.body, Place("Killed", queue_id, offset)))
                    offset += 1
    finally:
        store.close()
    return found
