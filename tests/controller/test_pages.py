"""Metrics and health of a controller, with a group whose master dies."""

import re
from pathlib import Path

import trio

from rmq.controller.pages import families
from rmq.testing import running_controller, running_name_server
from tests.controller.test_server import brokers
from tests.observe.test_pages import Scrape, get
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
GROUP = {"cluster": "C", "broker_set": "b"}


async def scrape(node):
    status, body = await get(node, "/metrics")
    assert status == "200 OK"
    return Scrape(body)


async def test_a_group_whose_master_dies(tmp_path):
    async with (
        running_controller(tmp_path, SETTINGS) as node,
        brokers(node, 1, 2) as (a, b),
    ):
        await a.start()
        await b.start()
        await a.join([1, 2])
        before = await scrape(node)
        assert before.value("rmq_controller_leading") == 1
        assert before.value("rmq_controller_group_master", **GROUP) == 1
        assert before.value("rmq_controller_group_in_sync", **GROUP) == 2
        assert before.value("rmq_controller_elections_total", result="kept") == 1
        await a.die()
        with trio.fail_after(5):
            await b.noticed.wait()
        after = await scrape(node)
        for name, value in (
            ("epoch", 2),
            ("in_sync", 1),
            ("members", 2),
            ("living", 1),
        ):
            assert after.value(f"rmq_controller_group_{name}", **GROUP) == value
        assert after.value("rmq_controller_elections_total", result="elected") == 2
        assert after.value("rmq_controller_unconfirmed_total") == 0


async def test_a_group_without_a_master(tmp_path):
    async with (
        running_controller(tmp_path, SETTINGS) as node,
        brokers(node, 1) as (a,),
    ):
        await a.start()
        await a.die()
        with trio.fail_after(5):
            while True:
                found = await scrape(node)
                if found.value("rmq_controller_elections_total", result="failed"):
                    break
                await trio.sleep(0.05)
        assert found.value("rmq_controller_group_master", **GROUP) == 0


async def test_a_text_is_of_one_moment(tmp_path):
    """A group loses its master while its text is written: the parts agree."""
    async with (
        running_controller(tmp_path, SETTINGS) as node,
        brokers(node, 1) as (a,),
    ):
        await a.start()
        rest = families(node.controller, node.server)
        next(rest)
        await a.die()
        await until(lambda: node.controller.statistics().counts.failed)
        samples = {family.name: list(family.samples) for family in rest}
        elections = samples["rmq_controller_elections_total"]
        assert {each.labels["result"]: each.value for each in elections}["failed"] == 0
        (master,) = samples["rmq_controller_group_master"]
        assert master.value == 1


async def test_health_and_readiness(tmp_path):
    async with running_controller(tmp_path, SETTINGS) as node:
        assert await get(node, "/healthz") == ("200 OK", "alive\n")

        async def is_ready():
            return await get(node, "/readyz") == ("200 OK", "ready\n")

        await until(is_ready)
        node.controller.lead.set_term(None)
        node.controller.lead.view.leader = None
        status, body = await get(node, "/readyz")
        assert status == "503 Service Unavailable"
        assert body.startswith("no controller is the leader")
        assert (await get(node, "/nothing"))[0] == "404 Not Found"


async def test_without_the_key_nothing_is_served(tmp_path):
    async with running_controller(tmp_path) as node:
        assert node.http_port == 0


async def test_a_controller_in_a_name_server_has_them_too(tmp_path):
    settings = SETTINGS | {
        "enableControllerInNamesrv": "true",
        "rmq.controller.listenPort": "0",
        "controllerStorePath": str(tmp_path / "state"),
    }
    async with running_name_server(tmp_path, settings) as node:
        assert await get(node, "/healthz") == ("200 OK", "alive\n")


async def test_each_metric_of_an_alert_is_exported(tmp_path):
    text = (ROOT / "docs/operate/operations.md").read_text()
    named = set(re.findall(r"`(rmq_controller_\w+)", text))
    async with running_controller(tmp_path) as node:
        found = families(node.controller, node.server)
        exported = {family.name for family in found}
    assert named
    assert named <= exported
