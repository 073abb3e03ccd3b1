"""`rmq doctor --plan`: a load against this machine."""

import json
import resource

import pytest

from rmq.cli.doctor import plan as plans
from rmq.cli.doctor.plan import (
    DELIVERY_US,
    SEND_US,
    _cost_us,
    parse_load,
    plan_capacity,
)
from rmq.core.errors import ConfigError


def findings(text, **values):
    return {each.subject: each for each in plan_capacity(text, values)}


def test_a_plan_has_names_and_numbers():
    load = parse_load("topics=10000,queues=4")
    assert (load["topics"], load["queues"]) == (10_000, 4)
    assert load.keys() == plans.DEFAULTS.keys()


@pytest.mark.parametrize("text", ["", "topics", "topics=many", "colour=3", "topics=-1"])
def test_a_wrong_plan_names_what_is_possible(text):
    with pytest.raises(ConfigError, match="names are topics, queues"):
        parse_load(text)


def test_queues_cost_memory_and_disk_but_no_descriptors(tmp_path):
    few = findings("topics=10", storePathRootDir=str(tmp_path))
    many = findings("topics=30000", storePathRootDir=str(tmp_path))
    assert few["descriptors"] == many["descriptors"]
    assert few["mappings"] == many["mappings"]
    assert few["memory"].text != many["memory"].text
    assert few["disk"].text != many["disk"].text


def test_each_connection_needs_a_descriptor(tmp_path):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    root = {"storePathRootDir": str(tmp_path)}
    found = findings(f"clients={hard}", **root)
    assert found["descriptors"].is_problem
    assert "ulimit -n" in found["descriptors"].remedy
    clients = f"clients={hard // 4}"
    assert not findings(clients, **root)["descriptors"].is_problem


def test_a_limit_of_connections_is_compared(tmp_path):
    values = {"storePathRootDir": str(tmp_path), "rmq.maxConnections": "50"}
    assert findings("clients=51", **values)["connections"].is_problem
    assert not findings("clients=50", **values)["connections"].is_problem


def test_a_disk_that_is_too_small_is_a_problem(tmp_path):
    root = {"storePathRootDir": str(tmp_path / "later" / "store")}
    assert findings("rate=1000000,hours=9999", **root)["disk"].is_problem
    assert not findings("rate=1,hours=1,size=1", **root)["disk"].is_problem


@pytest.mark.parametrize("points", [SEND_US, DELIVERY_US])
def test_costs_fall_with_the_rate(points):
    rates = [1, 99, *(rate for rate, _ in points), 20_000, 10**7]
    costs = [_cost_us(points, rate) for rate in sorted(rates)]
    assert costs == sorted(costs, reverse=True)
    assert {_cost_us(points, rate) for rate, _ in points} == {
        cost for _, cost in points
    }


def test_more_than_a_core_wants_more_brokers(monkeypatch, tmp_path):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    found = findings("rate=900000", storePathRootDir=str(tmp_path))
    assert found["CPU"].is_problem
    assert found["CPU"].remedy.startswith("rmq broker --brokers ")


async def test_doctor_shows_the_plan(command, tmp_path):
    result = await command(
        "doctor",
        "--json",
        "--plan",
        "topics=5",
        "--set",
        f"storePathRootDir={tmp_path}",
    )
    subjects = [each["subject"] for each in json.loads(result.stdout)]
    assert subjects == ["memory", "descriptors", "mappings", "disk", "CPU"]
