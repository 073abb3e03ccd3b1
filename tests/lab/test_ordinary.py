"""The load of the ordinary hour against a real broker: nothing is lost or late."""

import os

import pytest

from bench.load import paced, run
from lab import ordinary


@pytest.fixture
def server(rmq_broker):
    port = int(rmq_broker.address.rpartition(":")[2])
    for queues in (4, 8):
        paced.create_topic(port, queues)
    return run.Server(os.getpid(), port, 0.0)


@pytest.mark.slow
def test_a_sender_keeps_its_rate(server):
    found = ordinary.send(server, 200, 0.5)
    assert found["messages"] == 100
    assert 0.4 < found["seconds"] < 2
    assert 0 < found["p50_us"] <= found["p99_us"]


@pytest.mark.slow
def test_every_group_receives_every_message(server):
    # `deliver` ends the run if one is missing
    found = ordinary.deliver(server, ordinary.Delivery(200, 8, 3), 0.5)
    assert found["messages_a_pull"] >= 1
    assert 0 < found["p50_us"] <= found["p99_us"]


@pytest.mark.slow
def test_quiet_consumers_hold_their_pulls(server):
    with ordinary.started_part("wait", server, "--connections=20", "--seconds=0.2"):
        pass


def test_the_table_compares_with_the_echo():
    figures = {"cpu_us": 30.0, "p50_us": 1.0, "p99_us": 2.0}
    result = {
        "sends": {100: {"echo": figures | {"cpu_us": 10.0}, "rmq": figures}},
        "deliveries": {},
        "rest": {},
    }
    (_, head, rows), *_ = ordinary.tables(result)
    assert [row[head.index("x echo")] for row in rows] == ["1.0", "3.0"]
