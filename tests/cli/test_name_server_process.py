"""A name server alone and a broker that dies beside it."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import trio

from rmq.protocol.bodies.route import ClusterInfo
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient

pytestmark = pytest.mark.slow


@contextmanager
def process(command, *settings):
    arguments = [part for setting in settings for part in ("--set", setting)]
    environment = {k: v for k, v in os.environ.items() if k != "NAMESRV_ADDR"}
    with subprocess.Popen(
        [sys.executable, "-m", "rmq", command, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    ) as child:
        try:
            yield child, until_ready(child)
        finally:
            child.kill()


def until_ready(child):
    for line in child.stderr:
        if line.startswith("ready "):
            return line.rpartition("=")[2].strip()
    raise AssertionError("it ended before it was ready")


async def brokers(client):
    answer = await client.call(Command.request(RequestCode.GET_BROKER_CLUSTER_INFO))
    return list(ClusterInfo.decode(answer.body).broker_addr_table)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_broker_that_ends_leaves_the_routes(tmp_path, number):
    kv_path = f"kvConfigPath={tmp_path / 'kvConfig.json'}"
    store = f"storePathRootDir={tmp_path / 'store'}"
    size = "mappedFileSizeCommitLog=1048576"
    with process("namesrv", "listenPort=0", kv_path) as (names, address):
        settings = ("listenPort=0", "brokerName=b", store, size)
        with process("broker", *settings, f"namesrvAddr={address}") as (broker, used):
            assert used == address
            async with RawClient.connect(address) as client:
                assert await brokers(client) == ["b"]
                broker.send_signal(number)
                with trio.fail_after(10):
                    while await brokers(client):
                        await trio.lowlevel.checkpoint()
            broker.wait(20)
        names.terminate()
        assert names.wait(20) == 0


async def test_a_controller_ends_in_order_and_begins_with_its_groups(tmp_path):
    settings = "rmq.controller.listenPort=0", f"controllerStorePath={tmp_path}"
    fields = {
        "clusterName": "C", "brokerName": "b", "appliedBrokerId": "1",
        "registerCheckCode": "h:1;1",
    }  # fmt: skip
    for known in (2008, 0):
        with process("controller", *settings) as (controller, address):
            async with RawClient.connect(address) as client:
                request = Command.request(RequestCode.CONTROLLER_GET_REPLICA_INFO)
                request.ext_fields = {"brokerName": "b"}
                assert (await client.call(request)).code == known
                request = Command.request(RequestCode.CONTROLLER_APPLY_BROKER_ID)
                request.ext_fields = fields
                assert (await client.call(request)).code == 0
            controller.terminate()
            assert controller.wait(20) == 0
