"""An offset id has the address at which the broker stored the message: it may move."""

import json

import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.protocol.bodies.topics import TopicConfig
from rmq.testing import running_node


async def run(node, *arguments):
    line = ["admin", arguments[0], "-n", node.name_servers[0], *arguments[1:]]
    return await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, line))


async def test_a_message_of_a_broker_that_has_moved_is_found_by_its_topic(tmp_path):
    async with running_node(tmp_path) as node:
        context = node.broker.context
        context.topics.update(TopicConfig(topic_name="Orders"))
        context.publish("Orders", b"one", queue_id=0)
        (record,) = [context.messages.message_at(0)]
    async with running_node(tmp_path) as node:
        query = "queryMsgById", "-i", record.offset_msg_id
        found = await run(node, *query, "-t", "Orders", "--json")
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout)["body"] == "one"
        lost = await run(node, *query)
        assert lost.exit_code != 0
        assert "name the topic with -t" in lost.output
        other = record.offset_msg_id[:-2] + "01"
        assert (await run(node, *query[:2], other, "-t", "Orders")).exit_code != 0
