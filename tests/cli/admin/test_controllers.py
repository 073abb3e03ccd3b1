"""`rmq admin` with a controller that runs."""

import json

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_controller


@pytest.fixture
async def controller(tmp_path):
    """A controller with a group of two brokers, of which 1 is master."""
    async with (
        running_controller(tmp_path) as node,
        RawClient.connect(node.controller.address) as client,
    ):

        async def ask(code, **fields):
            request = Command.request(code)
            request.ext_fields = {"clusterName": "C", "brokerName": "b"} | {
                name: str(value) for name, value in fields.items()
            }
            answer = await client.call(request)
            assert answer.code in (0, 2011), answer.remark

        for each in (1, 2):
            address = f"127.0.0.1:{each}"
            await ask(
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                appliedBrokerId=each,
                registerCheckCode=f"{address};1",
            )
            await ask(RequestCode.BROKER_HEARTBEAT, brokerId=each, brokerAddr=address)
            await ask(RequestCode.CONTROLLER_ELECT_MASTER, brokerId=each)
        yield node.controller.address


async def test_who_leads(controller, command):
    words = "admin", "getControllerMetaData", "-a", f"127.0.0.1:1;{controller}"
    result = await command(*words, "--json")
    assert json.loads(result.stdout) == {
        "controllerGroup": "rmq-controller",
        "controllerLeaderId": controller,
        "controllerLeaderAddress": controller,
        "peers": controller,
    }


async def test_who_is_in_the_set(controller, command):
    words = "admin", "getSyncStateSet", "-a", controller, "-b", "b"
    result = await command(*words, "--json")
    rows = json.loads(result.stdout)
    assert [(row["brokerId"], row["master"], row["inSync"]) for row in rows] == [
        (1, True, True),
        (2, False, False),
    ]
    assert (await command("admin", "getSyncStateSet", "-a", controller)).exit_code == 2


async def test_a_broker_that_lags_is_not_made_master(controller, command):
    words = "electMaster", "-a", controller, "-bn", "b", "-c", "C", "-b"
    result = await command("admin", *words, "2")
    assert result.exit_code == 5
    assert "Failed to elect a new master" in result.stderr


async def test_a_broker_is_forgotten(controller, command):
    words = "admin", "cleanBrokerMetadata", "-a", controller, "-bn", "b", "-c", "C"
    refused = await command(*words, "-b", "2")
    assert "still alive" in refused.stderr
    assert (await command(*words, "-b", "2", "-l")).exit_code == 0
    shown = await command("admin", "getSyncStateSet", "-a", controller, "-b", "b")
    assert len(shown.stdout.splitlines()) == 2


async def test_keys(controller, command):
    words = "admin", "updateControllerConfig", "-a", controller
    done = await command(*words, "-k", "notifyBrokerRoleChanged", "-v", "false")
    assert done.exit_code == 0, done.output
    shown = await command("admin", "getControllerConfig", "-a", controller, "--json")
    assert json.loads(shown.stdout)["notifyBrokerRoleChanged"] == "false"
