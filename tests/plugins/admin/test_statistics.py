"""Progress and traffic as tools see them: requests 208, 315 and 317."""

import pytest

from rmq.protocol.bodies.groups import ConsumeStats
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.fastjson import ObjectKey, load_json
from rmq.remoting import turns
from rmq_plugins.admin.queue_tables import QUEUES_AT_ONCE


@pytest.fixture
def busy(caller, clock):
    """Two topics with messages; group G has taken some of both, H of one."""
    caller.topic("O", queues=1, order=True)
    for number in range(5):
        clock.ms += 1_000
        caller.send("T", queueId=0)
        caller.send("O", queueId=0, body=b"x" * number or b"-")
    caller.send("T", queueId=1)
    caller.report_arrivals()
    caller.pull("T", consumerGroup="G", maxMsgNums=3)
    caller.pull("O", consumerGroup="G", maxMsgNums=2)
    for group, topic, offset in (("G", "T", 3), ("G", "O", 2), ("H", "T", 5)):
        fields = {
            "consumerGroup": group, "topic": topic, "queueId": 0,
            "commitOffset": offset,
        }  # fmt: skip
        caller.broker.groups.find(group)
        assert caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    return caller


def queue(topic, queue_id):
    return ObjectKey({"brokerName": "broker-a", "queueId": queue_id, "topic": topic})


def by_queue(table):
    return {(key["topic"], key["queueId"]): entry for key, entry in table.items()}


def test_progress_of_a_group(busy, clock):
    body = load_json(
        busy.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}).body
    )
    table = by_queue(body["offsetTable"])
    assert set(table) == {("T", 0), ("T", 1), ("O", 0)}
    assert table["T", 0] == {
        "brokerOffset": 5,
        "consumerOffset": 3,
        "lastTimestamp": clock.ms - 2_000,
        "pullOffset": 3,
    }
    assert table["T", 1]["brokerOffset"] == 1
    assert table["T", 1]["lastTimestamp"] == 0
    assert body["consumeTps"] == 0.5  # five messages within the first ten seconds


def test_progress_in_many_queues_is_whole(busy):
    wanted = {"O": 1, "Wide": 3 * QUEUES_AT_ONCE + 1}
    wanted |= {f"N{number}": 24 for number in range(6)}
    for topic, queues in wanted.items():
        busy.topic(topic, queues=queues)
    fields = {"consumerGroup": "G", "topicList": ";".join([*wanted, "Wide"])}
    body = busy.call(RequestCode.GET_CONSUME_STATS, fields).body
    stats = ConsumeStats.decode(body)
    assert len(stats.encode()) == len(body)
    found = [(each.topic, each.queue_id) for each in stats.offset_table]
    assert sorted(found) == sorted(
        (topic, number) for topic, queues in wanted.items() for number in range(queues)
    )


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"}),
        (RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
        (RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "T", "group": "G"}),
    ],
)
def test_queues_of_a_wide_topic_are_read_in_turns(busy, monkeypatch, code, fields):
    """Others waited 0.6 s while the broker answered for 32,000 queues."""
    monkeypatch.setattr(turns, "TURN_S", 0)
    queues, taken = 40 * QUEUES_AT_ONCE, []

    async def next_turn():
        taken.append(1)

    busy.topic("T", queues=queues)
    busy.broker.next_turn = next_turn
    body = busy.call(code, fields).body
    assert body.count(b'"queueId":') >= queues
    assert len(taken) >= 40


def test_counts_of_many_views_are_added_in_steps(busy):
    """Each topic of an answer counted all views again."""
    statistics, steps = busy.broker.statistics, []

    def source():
        for number in range(3):
            steps.append(number)
            yield

    statistics.sources.append(source)
    for number in range(5):
        busy.topic(f"N{number}", queues=1)
        fields = {
            "consumerGroup": "G", "topic": f"N{number}", "queueId": 0,
            "commitOffset": 0,
        }  # fmt: skip
        assert busy.call(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    busy.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G"})
    assert steps == [0, 1, 2]


@pytest.mark.parametrize("fields", [{"topic": "O"}, {"topicList": "O;Unknown"}])
def test_progress_in_some_topics(busy, fields):
    body = load_json(
        busy.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "G", **fields}).body
    )
    assert set(by_queue(body["offsetTable"])) == {("O", 0)}


def test_progress_of_a_group_nobody_knows(busy):
    body = load_json(
        busy.call(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "X"}).body
    )
    assert body == {"consumeTps": 0.0, "offsetTable": {}}


def test_progress_of_all_groups(busy):
    body = load_json(
        busy.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}).body
    )
    shown = {
        name: each for entry in body["consumeStatsList"] for name, each in entry.items()
    }
    assert body["brokerAddr"] == "127.0.0.1:10911"
    assert body["totalDiff"] == (5 - 3) + 1 + (5 - 2) + 1
    assert shown["TOOLS_CONSUMER"] == []
    assert len(shown["G"]) == 2
    assert by_queue(shown["H"][0]["offsetTable"])["T", 0]["consumerOffset"] == 5


def test_progress_in_ordered_topics_alone(busy):
    body = load_json(
        busy.call(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "true"}).body
    )
    shown = {
        name: each for entry in body["consumeStatsList"] for name, each in entry.items()
    }
    assert shown["H"] == []
    assert set(by_queue(shown["G"][0]["offsetTable"])) == {("O", 0)}
    assert body["totalDiff"] == 3


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", "T", 6),
        ("TOPIC_PUT_NUMS", "O", 5),
        ("QUEUE_PUT_NUMS", "T@1", 1),
        ("GROUP_GET_NUMS", "T@G", 3),
        ("GROUP_GET_NUMS", "O@G", 2),
        ("BROKER_PUT_NUMS", "DefaultCluster", 11),
        ("BROKER_GET_NUMS", "DefaultCluster", 5),
    ],
)
def test_traffic(busy, name, key, total):
    body = load_json(
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}
        ).body
    )
    assert set(body) == {"statsMinute", "statsHour", "statsDay"}
    for window in body.values():
        assert window["sum"] == total
        assert window["tps"] > 0
        assert window["avgpt"] > 0


def test_bytes_of_a_topic_are_those_of_its_records(busy):
    body = load_json(
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": "TOPIC_PUT_SIZE", "statsKey": "T"},
        ).body
    )
    other = load_json(
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": "TOPIC_PUT_SIZE", "statsKey": "O"},
        ).body
    )
    total = busy.broker.store.statistics().put_bytes
    assert body["statsDay"]["sum"] + other["statsDay"]["sum"] == total


def test_bytes_of_a_pull_are_those_of_the_answer(busy):
    size = len(busy.pull("T", consumerGroup="G", maxMsgNums=3).body)
    body = load_json(
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": "GROUP_GET_SIZE", "statsKey": "T@G"},
        ).body
    )
    assert body["statsDay"]["sum"] == 2 * size


def test_traffic_that_never_was(busy):
    answer = busy.call(
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": "U"},
    )
    assert (answer.code, answer.remark) == (
        1,
        "The stats <TOPIC_PUT_NUMS> <U> not exist",
    )


def test_messages_given_back_are_counted(busy):
    offset = busy.broker.store.queues.get("T", 0).entry_at(0)[0]
    fields = {"offset": offset, "group": "G", "delayLevel": 3, "originTopic": "T"}
    assert busy.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    body = load_json(
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": "SNDBCK_PUT_NUMS", "statsKey": "T@G"},
        ).body
    )
    assert body["statsMinute"]["sum"] == 1


def test_topic_rate_comes_with_its_offsets(busy):
    body = load_json(busy.call(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "T"}).body)
    assert body["topicPutTps"] == 0.6


def test_deleted_topics_and_groups_are_not_counted_any_more(busy):
    busy.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})
    busy.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "O"})
    for name, key in (("GROUP_GET_NUMS", "T@G"), ("TOPIC_PUT_NUMS", "O")):
        assert (
            busy.call(
                RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key}
            ).code
            == ResponseCode.SYSTEM_ERROR
        )
    assert (
        busy.call(
            RequestCode.VIEW_BROKER_STATS_DATA,
            {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"},
        ).code
        == 0
    )
