"""How long a stop takes, and what its lines name."""

import logging
import re
import socket
import time
import urllib.request

import pytest
import trio

from rmq.broker.stop_limit import StopLimit
from rmq.client import Message
from rmq.client.blocking import Producer
from rmq.plugin import hookimpl
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.records import decode_stored
from rmq.testing import RawClient, running_node
from tests.interop import wire
from tests.interop.processes import Server, broker_arguments, free_port
from tests.waiting import wait_until

HANGS = 30_001
LIMIT_S = 2
SLACK_S = 1.0


class Hanging:
    """A plugin whose handler never ends."""

    begun = trio.Event()

    @staticmethod
    @hookimpl
    def rmq_setup(register):
        async def handle(request, connection):
            Hanging.begun.set()
            await trio.sleep_forever()

        register.handler(HANGS, handle)


def test_the_time_that_is_left():
    limit = StopLimit()
    limit.begin(10, writes_lines=False)
    assert 9.9 < limit.left_s() <= 10
    assert 4.9 < limit.left_s(0.5) <= 5
    limit.begin(0, writes_lines=False)
    assert limit.left_s() == 0
    assert StopLimit().left_s() > 0, "a start that failed has some time, too"


async def test_a_request_that_hangs_delays_a_stop_within_its_limit(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    settings = {"rmq.stopTimeoutSeconds": str(LIMIT_S)}
    async with (
        running_node(tmp_path, settings, plugins={"hanging": Hanging}) as node,
        RawClient.connect(node.address) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(client.send_bytes, encode(Command.request(HANGS)))
        await Hanging.begun.wait()
        begun = trio.current_time()
        node.stop()
        await node.finished.wait()
    assert trio.current_time() - begun <= LIMIT_S + SLACK_S
    assert "the stop waits for running requests (1); 1 s are left" in caplog.text


async def test_a_name_server_that_hangs_delays_a_stop_within_its_limit(
    tmp_path, caplog
):
    caplog.set_level(logging.INFO)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings = {
            "rmq.stopTimeoutSeconds": str(2 * LIMIT_S),
            "namesrvAddr": f"127.0.0.1:{silent.getsockname()[1]}",
        }
        async with running_node(tmp_path, settings) as node:
            begun = trio.current_time()
            node.stop()
            await node.finished.wait()
    assert trio.current_time() - begun <= LIMIT_S
    assert "the stop waits for the name servers" in caplog.text


def find_message(server, key):
    fields = {
        "topic": "T", "key": key, "maxNum": 10, "beginTimestamp": 0,
        "endTimestamp": 2**63 - 1,
    }  # fmt: skip
    answer = wire.call(server.address, RequestCode.QUERY_MESSAGE, fields)
    return answer.code == 0 and len(decode_stored(answer.body)) == 1


def index_lag(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return float(re.search(rb"(?m)^rmq_index_lag_bytes\S* (\S+)", answer.read())[1])


MESSAGES, KEYS = 28_000, 1_000


@pytest.mark.slow
@pytest.mark.plain
@pytest.mark.timeout(120)
def test_a_stop_leaves_millions_of_index_entries_to_the_next_start(disk_path):
    """It took 20 s, without a line, and began again after `docker stop`."""
    metrics = free_port()
    keys = "metricsExporterType=PROM", f"metricsPromExporterPort={metrics}"
    arguments = [*broker_arguments(disk_path, *keys), "--log-level", "info"]
    server = Server(*arguments, "--set", "messageIndexEnable=false")
    with Producer(server.namesrv) as producer:
        for number in range(MESSAGES):
            keys = [f"{number}-{key}" for key in range(KEYS)]
            producer.enqueue(Message("T", b"x", keys=keys))
        producer.flush()
    server.kill()
    server = Server(*arguments)
    begun = time.monotonic()
    assert server.stop() == 0
    took_s = time.monotonic() - begun
    text = "".join(server.lines)
    assert "not indexed; the next start continues" in text, "the test needs more keys"
    assert took_s <= 3, text
    assert not (disk_path / "abort").exists()
    server = Server(*arguments)
    try:
        for key in (f"0-{KEYS - 1}", f"{MESSAGES - 1}-0"):
            assert find_message(server, key)
        wait_until(lambda: index_lag(metrics) == 0, "the index is complete", 60)
        for key in ("0-0", f"{MESSAGES - 1}-{KEYS - 1}"):
            assert find_message(server, key)
    finally:
        assert server.stop() == 0
