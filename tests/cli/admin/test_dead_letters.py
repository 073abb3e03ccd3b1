"""`rmq admin resendDeadLetters`: what a consumer gave up comes to its group again."""

import json

import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.protocol.codes import OwnRequestCode, RequestCode
from rmq.protocol.command import Command
from rmq.testing import RawClient, running_node

DEAD, RETRY = "%DLQ%billing", "%RETRY%billing"


@pytest.fixture
async def node(tmp_path):
    """A broker whose group gave up five messages: at once, by a negative level."""
    async with running_node(tmp_path / "store") as node:
        broker = node.broker.context
        broker.topics.ensure("Orders", queues=1, perm=6)
        broker.groups.find("billing")
        for tag in "aabbb":
            broker.publish("Orders", tag.encode() * 3, tags=tag, queue_id=0)
        async with RawClient.connect(node.address) as client:
            for offset in range(5):
                await give_up(client, broker, "Orders", offset)
        yield node


async def give_up(client, broker, topic, offset):
    physical = broker.store.reads.physical_at(topic, 0, offset)
    fields = {
        "group": "billing", "offset": str(physical), "delayLevel": "-1",
        "originTopic": "Orders", "maxReconsumeTimes": "16",
    }  # fmt: skip
    command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    answer = await client.call(command)
    assert answer.code == 0, answer.remark


async def run(node, *arguments):
    line = ["admin", "resendDeadLetters", "-n", node.name_servers[0], "-g", "billing"]
    return await trio.to_thread.run_sync(
        lambda: CliRunner().invoke(main, [*line, *arguments])
    )


def end(node, topic):
    return int(node.broker.context.store.reads.max_offset(topic, 0))


def bodies(node):
    reads = node.broker.context.store.reads
    places = [reads.physical_at(RETRY, 0, at) for at in range(end(node, RETRY))]
    return [reads.message_at(place).body.decode() for place in places]


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (("--all",), ["aaa", "aaa", "bbb", "bbb", "bbb"]),
        (("-t", "Orders", "--tag", "b"), ["bbb", "bbb", "bbb"]),
        (("-t", "Other", "--tag", "b"), []),
        (("-B", "broker-test", "-o", "1,3"), ["aaa", "bbb"]),
    ],
)
async def test_the_chosen_ones_come_again(node, chosen, expected):
    assert end(node, DEAD) == 5
    result = await run(node, *chosen, "--json")
    (row,) = json.loads(result.stdout)
    assert row["broker"] in ("broker-test", node.address)
    assert row["resent"] == len(expected)
    assert bodies(node) == expected
    assert (end(node, "Orders"), end(node, DEAD)) == (5, 5)


async def test_they_have_all_attempts_before_them_and_may_die_again(node):
    await run(node, "-B", "broker-test", "-o", "0")
    broker = node.broker.context
    reads = broker.store.reads
    again = reads.message_at(reads.physical_at(RETRY, 0, 0))
    assert again.reconsume_times == 0
    assert again.properties["RETRY_TOPIC"] == "Orders"
    assert again.properties["TAGS"] == "a"
    async with RawClient.connect(node.address) as client:
        await give_up(client, broker, RETRY, 0)
    assert end(node, DEAD) == 6
    dead = reads.message_at(reads.physical_at(DEAD, 0, 5))
    assert dead.properties["RETRY_TOPIC"] == "Orders"


async def test_it_is_in_the_audit(node):
    await run(node, "--all")
    (change,) = node.broker.context.audit.all()
    assert (change.action, change.subject) == (
        "RESEND_DEAD_LETTERS", "group=billing all=true",
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [(), ("--all", "-o", "1"), ("-t", "Orders"), ("-o", "1")]
)
async def test_one_choice_is_needed(node, arguments):
    result = await run(node, *arguments)
    assert result.exit_code == 2
    assert end(node, RETRY) == 0


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"group": "billing"},
            "select dead letters by offsets, by topic and tag, or by all=true",
        ),
        ({"group": "billing", "tag": "a"}, "select dead letters"),
        ({"group": "billing", "offsets": "1,-1"}, "offsets must be numbers"),
        ({"group": "billing", "offsets": "9" * 19}, "offsets must be numbers"),
        ({"group": "billing", "offsets": "1," * 10_001}, "more than 10000 offsets"),
        ({"group": "nobody", "all": "true"}, "the group nobody has no dead letters"),
        ({"group": "../x", "all": "true"}, "the group ../x has no dead letters"),
        ({}, "has no dead letters"),
    ],
)
async def test_wrong_requests(node, fields, remark):
    async with RawClient.connect(node.address) as client:
        command = Command(OwnRequestCode.RESEND_DEAD_LETTERS, fields)
        answer = await client.call(command)
    assert answer.code != 0
    assert remark in answer.remark
    assert end(node, RETRY) == 0


async def test_gaps_are_skipped(node):
    result = await run(node, "-B", "broker-test", "-o", "0,77", "--json")
    (row,) = json.loads(result.stdout)
    assert (row["resent"], row["looked"], row["skipped"]) == (1, 2, 1)
