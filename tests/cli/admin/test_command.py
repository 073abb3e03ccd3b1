"""`rmq admin` against a node: its output agrees with the node's state."""

import json
from pathlib import Path

import click
import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.admin.catalogue import ENTRIES
from rmq.cli.admin.command import admin_command as admin_group
from rmq.cli.admin.document import inspect_server, render_page
from rmq.cli.terminal.text import parse_time_ms
from rmq.protocol.command import Command
from rmq.protocol.fastjson import dump_json
from rmq.testing import RawClient, running_node

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as running:
        yield running


@pytest.fixture
def run(node):
    """Return a function that runs a command; its exit code, output and errors."""

    async def call(*arguments):
        line = ["admin", arguments[0], "-n", node.name_servers[0], *arguments[1:]]
        return await trio.to_thread.run_sync(
            lambda: CliRunner().invoke(main, [str(each) for each in line])
        )

    return call


@pytest.fixture
def shown(run):
    """Return a function that runs a command with --json and reads what it prints."""

    async def call(*arguments):
        result = await run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call


@pytest.fixture
async def topic(node, run):
    """A topic with 2 queues and 3 messages in queue 1."""
    broker = node.address
    for arguments in (
        ("updateTopic", "-b", broker, "-t", "Orders", "-r", 2, "-w", 2),
        ("updateSubGroup", "-b", broker, "-g", "G", "-r", 7),
    ):
        assert (await run(*arguments)).exit_code == 0
    await until(run, "brokerDatas", "topicRoute", "-t", "Orders")
    for number in range(3):
        result = await run(
            "sendMessage", "-t", "Orders", "-p", f"body {number}", "-k", f"k{number}",
            "-c", "TagA", "-b", "broker-test", "-i", 1,
        )  # fmt: skip
        assert result.exit_code == 0, result.output
    return "Orders"


async def until(run, text, *arguments):
    """Run a command until it prints a text: topics are in the routes a little later."""
    for _ in range(200):
        result = await run(*arguments)
        if result.exit_code == 0 and text in result.output:
            return
        await trio.sleep(0.02)
    raise AssertionError(f"{arguments} never said {text}")


def heartbeat(group="G"):
    """Return what brings a producer and a consumer online."""
    data = {
        "clientID": "c@1",
        "producerDataSet": [{"groupName": "P"}],
        "consumerDataSet": [
            {
                "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": [{"topic": "Orders", "subString": "*"}],
            }
        ],
    }  # fmt: skip
    return Command(34, {}, dump_json(data), language="GO", version=401)


async def test_a_static_topic_is_made_and_moved(node, run, shown):
    where = "-b", "broker-test", "-t", "Static"
    rows = await shown("updateStaticTopic", *where, "-qn", 2)
    assert [row["first offset"] for row in rows] == [0, 0]
    mappings = node.broker.context.queue_mappings
    assert sorted(mappings.get("Static").hosted_queues) == [0, 1]
    assert await shown("remappingStaticTopic", *where) == rows, "all is there already"
    again = await run("updateStaticTopic", *where, "-qn", 2)
    assert again.exit_code == 2
    assert "already has 2 queues" in again.output
    await until(run, "topicQueueMappingByBroker", "topicRoute", "-t", "Static")
    ordinary = await run(
        "updateStaticTopic", "-b", "broker-test", "-t", "TBW102", "-qn", 1
    )
    assert "is not static" in ordinary.output


async def test_clusters(node, shown, topic):
    (broker,) = await shown("clusterList")
    assert broker["clusterName"] == "DefaultCluster"
    assert broker["brokerName"] == "broker-test"
    assert broker["addr"] == node.address
    assert broker["version"] == "V5_5_0"
    assert broker["inTPS"] > 0
    assert broker["activated"] is True
    (totals,) = await shown("clusterList", "-m")
    assert totals["inTotalToday"] == 3


async def test_topics(node, run, shown, topic):
    (orders,) = [row for row in await shown("topicList") if row["topic"] == "Orders"]
    assert (orders["queues"], orders["perm"], orders["kind"]) == (2, "rw", "normal")
    assert orders["inTPS"] >= 0
    assert orders["groups"] == 0
    rows = await shown("topicStatus", "-t", topic)
    assert [(row["queueId"], row["maxOffset"]) for row in rows] == [(0, 0), (1, 3)]
    assert rows[1]["lastUpdateTimestamp"] > 1_700_000_000_000
    route = await shown("topicRoute", "-t", topic)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": node.address}
    (row,) = await shown("topicRoute", "-t", topic, "-l")
    assert (row["readQueueNums"], row["perm"]) == (2, 6)
    assert await shown("topicClusterList", "-t", topic) == [
        {"cluster": "DefaultCluster"}
    ]
    queues = await shown("allocateMQ", "-t", topic, "-i", "10.0.0.1,10.0.0.2")
    assert [(row["ip"], row["queueId"]) for row in queues] == [
        ("10.0.0.1", 0),
        ("10.0.0.2", 1),
    ]
    await shown("updateTopicPerm", "-b", node.address, "-t", topic, "-p", 4)
    assert node.broker.context.topics.get(topic).perm == 4
    await shown("deleteTopic", "-c", "DefaultCluster", "-t", topic)
    assert (await run("topicRoute", "-t", topic)).exit_code == 5


async def test_order_of_a_topic(node, shown):
    await shown("updateTopic", "-c", "DefaultCluster", "-t", "O", "-w", 4, "-o", "true")
    conf = await shown("updateOrderConf", "-t", "O", "-m", "get")
    assert conf == {"topic": "O", "orderConf": "broker-test:4"}
    await shown("updateOrderConf", "-t", "O", "-m", "put", "-v", "other:2")
    conf = await shown("updateOrderConf", "-t", "O", "-m", "get")
    assert conf["orderConf"] == "broker-test:4;other:2"
    await shown("updateOrderConf", "-t", "O", "-m", "delete")


async def test_lists_in_files(node, shown, tmp_path):
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName": "A", "readQueueNums": 3, "writeQueueNums": 3}]')
    groups.write_text('[{"groupName": "GA", "retryMaxTimes": 2}]')
    await shown("updateTopicList", "-b", node.address, "-f", topics)
    await shown("updateSubGroupList", "-b", node.address, "-f", groups)
    assert node.broker.context.topics.get("A").read_queue_nums == 3
    assert node.broker.context.groups.get("GA").retry_max_times == 2


async def test_messages(shown, topic):
    rows = await shown("consumeMessage", "-t", topic)
    assert [row["body"] for row in rows] == ["body 0", "body 1", "body 2"]
    rows = await shown("consumeMessage", "-t", topic, "-c", 2, "-i", 1, "-o", 1)
    assert [row["keys"] for row in rows] == ["k1", "k2"]
    (row,) = await shown("queryMsgByKey", "-t", topic, "-k", "k1")
    assert row["body"] == "body 1"
    assert len(await shown("queryMsgByKey", "-t", topic, "-k", "TagA", "-p", "T")) == 3
    message = await shown(
        "queryMsgByOffset", "-t", topic, "-b", "broker-test", "-i", 1, "-o", 2
    )
    assert (message["keys"], message["queueOffset"]) == ("k2", 2)
    by_id = await shown("queryMsgById", "-i", message["offsetMsgId"])
    assert by_id["body"] == "body 2"
    found = await shown("queryMsgByUniqueKey", "-t", topic, "-i", message["msgId"])
    assert found["queueOffset"] == 2
    rows = await shown("printMsg", "-t", topic, "-s", "TagB")
    assert rows == []
    rows = await shown("printMsg", "-t", topic, "-d", "false")
    assert [row["body"] for row in rows] == [None] * 3
    counts = await shown(
        "printMsgByQueue", "-t", topic, "-a", "broker-test", "-i", 1, "-f", "true"
    )
    assert counts == [{"tag": "TagA", "count": 3}]
    entries = await shown("queryCq", "-t", topic, "-q", 1, "-i", 1)
    assert [row["physicSize"] > 100 for row in entries] == [True, True]


async def test_sends_are_timed(shown, topic):
    rows = await shown("checkMsgSendRT", "-t", topic, "-a", 4)
    assert [row["queueId"] for row in rows] == [0, 1, 0, 1]
    assert len(await shown("sendMsgStatus", "-b", "broker-test", "-c", 2)) == 2
    (row,) = await shown("clusterRT", "-a", 3)
    assert row["successCount"] == 3
    assert row["maxRT"] >= row["meanRT"] > 0


async def test_offsets(node, shown, topic):
    rows = await shown("skipAccumulatedMessage", "-g", "G", "-t", topic)
    assert [(row["queueId"], row["offset"]) for row in rows] == [(0, 0), (1, 3)]
    rows = await shown("consumerProgress", "-g", "G")
    assert [(row["queueId"], row["diff"]) for row in rows] == [(0, 0), (1, 0)]
    rows = await shown("resetOffsetByTime", "-g", "G", "-t", topic, "-s", "0")
    assert [row["offset"] for row in rows] == [0, 0]
    rows = await shown("brokerConsumeStats", "-b", node.address, "-l", 1)
    assert [(row["group"], row["queueId"], row["diff"]) for row in rows] == [
        ("G", 1, 3)
    ]
    rows = await shown(
        "resetOffsetByTime", "-g", "G", "-t", topic, "-s", "0", "-b", node.address,
        "-q", 1, "-o", 2,
    )  # fmt: skip
    assert rows == [{"brokerName": "broker-test", "queueId": 1, "offset": 2}]
    rows = await shown(
        "cloneGroupOffset", "-s", "G", "-d", "N", "-t", topic, "-o", "true"
    )
    assert [row["offset"] for row in rows] == [0, 2]
    rows = await shown("statsAll", "-t", topic)
    assert [
        (row["consumerGroup"], row["accumulation"], row["inMsg24Hour"]) for row in rows
    ] == [("G", 1, 3), ("N", 1, 3)]


async def test_clients(node, run, shown, topic):
    result = await run("consumerConnection", "-g", "G")
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: group G has no consumer online\n")
    async with RawClient.connect(node.address) as client:
        assert (await client.call(heartbeat())).code == 0
        found = await shown("consumerConnection", "-g", "G")
        assert [each["language"] for each in found["connectionSet"]] == ["GO"]
        assert found["subscriptionTable"]["Orders"]["subString"] == "*"
        (row,) = await shown("producerConnection", "-g", "P", "-t", topic)
        assert (row["clientId"], row["version"]) == ("c@1", 401)
        rows = await shown("producer", "-b", node.address)
        assert [(row["group"], row["clientId"]) for row in rows] == [("P", "c@1")]
        await shown("updateTopic", "-b", node.address, "-t", "%RETRY%G", "-r", 1)
        await until(run, "%RETRY%G", "topicList")
        rows = await shown("consumerProgress")
        assert [(row["group"], row["count"], row["model"]) for row in rows] == [
            ("G", 1, "CLUSTERING")
        ]
        assert [(row["library"], row["outTPS"]) for row in rows] == [("Go 4.9.4", 0.0)]
        assert rows[0]["waitsMs"] is None, "nothing was consumed yet"


async def test_a_client_that_does_not_report_its_state_is_shown(node, shown, topic):
    beat = heartbeat()
    beat.version = 1
    async with RawClient.connect(node.address) as client:
        assert (await client.call(beat)).code == 0
        found = await shown("consumerStatus", "-g", "G")
    assert list(found) == ["c@1"]
    assert "Version <1> too low to finish" in found["c@1"]


async def test_groups(node, shown, topic):
    found = await shown("getConsumerConfig", "-g", "G")
    assert found["DefaultCluster:broker-test"]["retryMaxTimes"] == 7
    await shown(
        "setConsumeMode", "-b", node.address, "-t", topic, "-g", "G", "-m", "PULL"
    )
    await shown("deleteSubGroup", "-c", "DefaultCluster", "-g", "G", "-r", "true")
    assert node.broker.context.groups.get("G") is None


async def test_brokers(node, run, shown, topic):
    facts = await shown("brokerStatus", "-b", node.address)
    assert facts["putMessageTimesTotal"] == "3"
    config = await shown("getBrokerConfig", "-b", node.address, "-k", "^brokerName$")
    assert config == {"brokerName": "broker-test"}
    (row,) = await shown("haStatus", "-c", "DefaultCluster")
    assert row["masterCommitLogMaxOffset"] == node.broker.context.store.log.end_offset
    result = await run("updateBrokerConfig", "-b", node.address, "-k", "x", "-v", "1")
    assert (result.exit_code, "has no key x" in result.stderr) == (5, True)
    for name in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert await shown(name) == {"result": [f"{node.address} success"]}


async def test_write_permission(node, shown, topic):
    for name in ("wipeWritePerm", "addWritePerm"):
        (line,) = (await shown(name, "-b", "broker-test"))["result"]
        assert int(line.rpartition(", ")[2]) > 10
        (row,) = await shown("topicRoute", "-t", topic, "-l")
        assert row["perm"] == (4 if name == "wipeWritePerm" else 6)


async def test_key_values(run):
    put = ("updateKvConfig", "-s", "ns", "-k", "a", "-v", "b")
    assert (await run(*put)).exit_code == 0
    assert (await run("deleteKvConfig", "-s", "ns", "-k", "a")).exit_code == 0


async def test_exports(node, shown, topic, tmp_path):
    folder = tmp_path / "export"
    await shown("exportMetadata", "-c", "DefaultCluster", "-f", folder)
    value = json.loads((folder / "metadata.json").read_text())
    assert set(value["topicConfigTable"]) == {"Orders"}
    assert value["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 7
    await shown("exportConfigs", "-c", "DefaultCluster", "-f", folder)
    value = json.loads((folder / "configs.json").read_text())
    assert value["brokerConfigs"]["broker-test"]["brokerName"] == "broker-test"
    await shown("exportMetrics", "-c", "DefaultCluster", "-f", folder)
    value = json.loads((folder / "metrics.json").read_text())
    report = value["evaluateReport"]["broker-test"]
    assert report["runtimeVersion"] == {"rocketmqVersion": "V5_5_0"}


async def test_what_is_not_there(node, run):
    result = await run("getBrokerEpoch", "-b", "broker-test")
    assert result.exit_code == 5
    assert "this request only for controllerMode" in result.stderr


async def test_thresholds_for_old_messages(node, shown):
    broker = ("-b", node.address)
    await shown("updateColdDataFlowCtrGroupConfig", *broker, "-g", "G", "-v", "1024")
    info = (await shown("getColdDataFlowCtrInfo", *broker))[node.address]
    assert info["configTable"] == {"G": 1024}
    await shown("removeColdDataFlowCtrGroupConfig", *broker, "-g", "G")
    info = (await shown("getColdDataFlowCtrInfo", *broker))[node.address]
    assert info["configTable"] == {}
    await shown("setCommitLogReadAheadMode", *broker, "-m", "1")
    assert not node.broker.context.store.log.reads_ahead


async def test_tables(run, topic):
    lines = (await run("topicStatus", "-t", topic, "--mqadmin")).stdout.splitlines()
    assert lines[0].split("#")[1:3] == ["Broker Name  ", "Queue Id  "]
    assert lines[2].split()[:4] == ["broker-test", "1", "0", "3"]


def invoke(*arguments):
    return CliRunner().invoke(main, ["admin", *arguments])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("topicList", "-n", "127.0.0.1:1"), 3),
        (("topicStatus",), 2),
        (("noSuchCommand",), 2),
        (("clusterList", "--no-such-flag"), 2),
        (("updateTopic", "-t", "x", "-n", "127.0.0.1:1"), 3),
        (("resetOffsetByTime", "-g", "g", "-t", "t", "-s", "soon"), 2),
    ],
)
def test_exit_codes(arguments, code):
    assert invoke(*arguments).exit_code == code


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_each_command_explains_itself(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert "--json" in result.output
    command = admin_group.get_command(click.Context(admin_group), name)
    assert command.help.rstrip().endswith(".")


def test_times():
    assert parse_time_ms("-1") == -1
    assert parse_time_ms("1795262064282") == 1_795_262_064_282
    assert parse_time_ms("2026-11-21#02:42:34:534") % 1_000 == 534
    assert parse_time_ms("now") > 1_700_000_000_000


@pytest.mark.slow
async def test_the_page_is_what_the_code_says():
    assert (ROOT / "docs" / "operate/admin.md").read_text() == render_page(
        await inspect_server()
    )


async def test_a_body_is_escaped_for_people_and_as_it_is_in_json(node, run, topic):
    line = "printMsgByQueue", "-t", topic, "-a", "broker-test", "-i", "0"
    await run("sendMessage", "-t", topic, "-p", "a\n\x1b[2J", "-b", "broker-test",
              "-i", 0)  # fmt: skip
    assert r"a\n\x1b[2J" in (await run(*line)).stdout
    assert "\x1b" not in (await run(*line, "--mqadmin")).stdout
    (message,) = json.loads((await run(*line, "--json")).stdout)
    assert message["body"] == "a\n\x1b[2J"


async def test_a_group_that_is_nearly_right(run, topic):
    result = await run("consumerProgress", "-g", "Gx")
    assert result.exit_code == 5
    assert result.stderr.startswith("rmq: there is no group Gx\n")
    assert (await run("consumerProgress", "-g", "G")).exit_code == 0
