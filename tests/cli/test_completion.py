"""Names that a shell completes: those that the servers know."""

import pytest
import trio
from click.shell_completion import BashComplete

from rmq.cli import main
from rmq.testing import running_node
from tests.cli.consume.test_command import until_known


@pytest.fixture
async def where(tmp_path, command):
    async with running_node(tmp_path / "store", {"brokerName": "shop-a"}) as node:
        where = "-n", node.name_servers[0]
        await command("send", *where, "T", "x")
        await until_known(command, where)
        await command("admin", "updateTopic", *where, "-B", "shop-a", "-t", "Orders")
        await command("consume", *where, "T", "-g", "billing", "-c", 1)
        yield where


async def completed(*words):
    """Return what a shell would offer for the last word."""
    shell = BashComplete(main, {}, "rmq", "_RMQ_COMPLETE")
    *before, last = words

    def ask():
        return [each.value for each in shell.get_completions(before, last)]

    return await trio.to_thread.run_sync(ask)


async def test_topics_groups_and_brokers(where):
    assert await completed("send", *where, "Or") == ["Orders"]
    assert await completed("consume", *where, "") == ["Orders", "T"]
    assert await completed("consume", *where, "T", "-g", "b") == ["billing"]
    assert await completed("admin", "topicRoute", *where, "-t", "") == ["Orders", "T"]
    words = "admin", "consumerProgress", *where, "-g", ""
    assert await completed(*words) == ["billing"]
    assert await completed("admin", "brokerStatus", *where, "-B", "") == ["shop-a"]


async def test_without_a_server_nothing_is_offered_and_nothing_is_said(capfd):
    assert await completed("send", "-n", "127.0.0.1:1", "Or") == []
    assert capfd.readouterr() == ("", "")
