"""Brokers as children: added, removed, killed, hanging, in each other's way."""

import json
import os
import re
import signal
import socket

import pytest
import trio

from rmq.protocol.bodies.route import ClusterInfo
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.testing import RawClient

from .conftest import silent, with_pid_gone

pytestmark = pytest.mark.slow

METRICS = "metricsExporterType=PROM", "metricsPromExporterPort=0"


async def ask(address, code, **fields):
    async with RawClient.connect(address) as client:
        return await client.call(Command(code, fields), timeout_s=20)


async def cluster(one):
    answer = await ask(one.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    return sorted(ClusterInfo.decode(answer.body).broker_addr_table)


def refusal(answer):
    assert answer.code == ResponseCode.SYSTEM_ERROR, answer
    return answer.remark


async def test_brokers_are_one_cluster_and_stop_in_order(container, tmp_path):
    one = container(3)
    names = ["broker-a", "broker-b", "broker-c"]
    assert one.names == names
    assert await cluster(one) == names
    pids = one.pids()
    assert one.stop() == 0
    for name, pid in pids.items():
        with_pid_gone(pid)
        assert not (tmp_path / name / "abort").exists()
        assert any(f"[{name}]" in line and "stopped" in line for line in one.lines)


async def test_a_killed_broker_comes_back_and_no_other_notices(container):
    one = container(3, *METRICS)
    before = one.pids()
    assert one.page("/readyz") == (200, "ready\n")
    os.kill(before["broker-b"], signal.SIGKILL)
    one.wait(lambda: len(one.addresses("broker-b")) == 2, "it serves again")
    after = one.pids()
    old, new = before.pop("broker-b"), after.pop("broker-b")
    assert new != old
    assert after == before
    assert any("broker-b ended with SIGKILL" in line for line in one.lines)
    assert one.page("/readyz") == (200, "ready\n")
    status, text = one.page("/metrics")
    assert status == 200
    assert (
        'rmq_container_broker_starts{node_id="broker-b",node_type="container"} 2'
        in text
    )
    for name in ("broker-a", "broker-b", "broker-c"):
        assert f'node_id="{name}"' in text
    heads = [line for line in text.splitlines() if line.startswith("# TYPE ")]
    assert len(heads) == len(set(heads))


async def test_brokers_are_added_and_removed(container, broker_file, tmp_path):
    one = container(1)
    path = str(broker_file("broker-b"))
    answer = await ask(one.address, RequestCode.ADD_BROKER, configPath=path)
    assert answer.code == ResponseCode.SUCCESS
    assert await cluster(one) == ["broker-a", "broker-b"]
    again = await ask(one.address, RequestCode.ADD_BROKER, configPath=path)
    assert refusal(again) == (
        "DefaultCluster_broker-b_0 has already been added to current broker container"
    )
    pid = one.pids()["broker-b"]
    who = {"brokerClusterName": "DefaultCluster", "brokerName": "broker-b"}
    answer = await ask(one.address, RequestCode.REMOVE_BROKER, **who, brokerId="0")
    assert answer.code == ResponseCode.SUCCESS
    with_pid_gone(pid)
    assert not (tmp_path / "broker-b" / "abort").exists()
    assert await cluster(one) == ["broker-a"]
    answer = await ask(one.address, RequestCode.REMOVE_BROKER, **who, brokerId="0")
    assert (answer.code, answer.remark) == (
        ResponseCode.BROKER_NOT_EXIST,
        "Broker not exist",
    )


async def test_what_cannot_start_is_refused_with_its_reason(
    container, broker_file, tmp_path
):
    one = container(1)

    async def added(**fields):
        return refusal(await ask(one.address, RequestCode.ADD_BROKER, **fields))

    assert await added() == "addBroker config path is empty"
    missing = str(tmp_path / "none.conf")
    assert f"cannot read configuration file {missing}" in await added(
        configPath=missing
    )
    wrong = str(broker_file("broker-w", listenPort="high"))
    assert "listenPort=high" in await added(configPath=wrong)
    twin = str(broker_file("broker-t", storePathRootDir=tmp_path / "broker-a"))
    assert str(tmp_path / "broker-a") in await added(configPath=twin)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        busy = str(broker_file("broker-p", listenPort=port))
        assert f"port {port} on 127.0.0.1 is in use" in await added(configPath=busy)
    assert set(one.pids()) == {"broker-a"}
    assert await cluster(one) == ["broker-a"]


async def test_a_broker_that_ends_at_once_starts_again_after_pauses(
    container, broker_file, tmp_path
):
    twin = broker_file("broker-t", storePathRootDir=tmp_path / "broker-a")
    one = container(1, brokers=[twin])
    again = re.compile(r".*broker-[at] ended with exit code 1; .* in 2 s")
    one.wait(
        lambda: any(again.match(line) for line in one.lines),
        "one of both is refused, and its second pause is longer",
    )
    assert len(await cluster(one)) == 1
    assert one.stop() == 0


async def test_a_broker_that_hangs_is_seen_and_killed_at_the_stop(container):
    one = container(2, *METRICS, "rmq.container.stopTimeoutSeconds=1")
    with silent(one.pids()["broker-b"]):
        status, text = one.page("/readyz")
        assert status == 503
        assert text == "broker broker-b: it does not answer within 5 s\n"
        assert one.page("/healthz") == (200, "alive\n")
        assert (
            await ask(one.addresses("broker-a")[0], RequestCode.GET_BROKER_CONFIG)
        ).code == 0
    pid = one.pids()["broker-b"]
    os.kill(pid, signal.SIGSTOP)
    assert one.stop() == 0
    with_pid_gone(pid)
    assert any("broker-b did not stop in 1 s" in line for line in one.lines)


async def test_brokers_end_with_a_container_that_is_killed(container, tmp_path):
    one = container(2)
    pids = one.pids()
    one.process.kill()
    for name, pid in pids.items():
        with_pid_gone(pid)
        assert not (tmp_path / name / "abort").exists(), "in order: they got SIGTERM"


async def test_only_its_own_host_may_add_brokers(container, broker_file):
    own = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    hosts = {each[4][0] for each in own if not each[4][0].startswith("127.")}
    if not hosts:
        pytest.skip("this host has no address but loopback")
    one = container(1, "bindAddress=0.0.0.0")
    address = f"{hosts.pop()}:{one.address.rpartition(':')[2]}"
    path = str(broker_file("broker-b"))
    answer = await ask(address, RequestCode.ADD_BROKER, configPath=path)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "rmq.container.adminFrom" in answer.remark
    assert set(one.pids()) == {"broker-a"}


async def test_a_container_shows_its_keys(container):
    one = container(0, "rmq.container.stopTimeoutSeconds=7")
    answer = await ask(one.address, RequestCode.GET_BROKER_CONFIG)
    assert "rmq.container.stopTimeoutSeconds=7" in answer.body.decode()
    other = await ask(one.address, RequestCode.UPDATE_BROKER_CONFIG)
    assert other.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_log_lines_of_json_name_their_broker(started, broker_file):
    path = broker_file("broker-a")
    settings = ["--set", "listenPort=0", "--set", "rmq.namesrv.listenPort=0"]
    one = started("container", "-b", str(path), "--log-format", "json", *settings)
    found = [json.loads(line) for line in one.lines if line.startswith("{")]
    assert {line.get("broker") for line in found} >= {"broker-a"}
    with trio.fail_after(20):
        assert await trio.to_thread.run_sync(one.stop) == 0
