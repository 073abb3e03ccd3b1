"""Light message queues as clients see them: topics and groups that nobody made."""

import json

import pytest

from rmq.broker.tables.groups import GroupTable
from rmq.broker.tables.offsets import OffsetTable
from rmq.broker.tables.topics import TopicTable
from rmq.config.broker import BrokerConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.records import decode_stored
from rmq.testing import ManualClock

LMQ, GROUP = "%LMQ%a", "%LMQ%g"
KEYS = {"lmq_enabled": True, "multi_dispatch_enabled": True}


@pytest.fixture
def light(make_caller):
    return make_caller(store=KEYS | {"max_lmq_count": 2})


def dispatch(caller, *names, **more):
    text = f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02"
    return caller.send(properties=text, **more)


def test_pulls_of_a_light_queue(light):
    for number in range(3):
        assert dispatch(light, LMQ, body=b"%d" % number).code == 0
    answer = light.pull(topic=LMQ, offset=1, consumerGroup=GROUP)
    assert [record.body for record in decode_stored(answer.body)] == [b"1", b"2"]
    assert answer.ext_fields["nextBeginOffset"] == "3"
    for code, offset in ((30, "3"), (31, "0")):
        found = light.call(code, {"topic": LMQ, "queueId": 0})
        assert found.ext_fields["offset"] == offset
    assert LMQ not in light.broker.topics.all()
    assert GROUP not in light.broker.groups.all()


def test_one_light_queue_too_many(light):
    assert dispatch(light, LMQ, "%LMQ%b").code == 0
    for answer in (dispatch(light, "%LMQ%c"), light.send(topic="%LMQ%c")):
        assert answer.code == ResponseCode.LMQ_QUOTA_EXCEEDED
        assert answer.remark == (
            "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded."
        )
    assert light.send(topic=LMQ).ext_fields["queueOffset"] == "1"


def test_names_that_are_none(light):
    assert dispatch(light, "T").code == ResponseCode.MESSAGE_ILLEGAL
    for name in ("%LMQ%../x", "%LMQ%" + "x" * 130):
        assert light.pull(topic=name).code == ResponseCode.TOPIC_NOT_EXIST
        assert light.send(topic=name).code == ResponseCode.INVALID_PARAMETER
    assert light.pull(topic=LMQ, queueId=1).code == ResponseCode.INVALID_PARAMETER


def test_without_the_key_there_is_no_such_topic(caller):
    assert dispatch(caller, LMQ).code == 0
    assert caller.pull(topic=LMQ).code == ResponseCode.TOPIC_NOT_EXIST


def test_compiled_sends_do_not_pass_over_the_names(light):
    for _ in range(5):
        light.send()
    dispatch(light, LMQ)
    assert light.broker.store.reads.max_offset(LMQ, 0) == 1


def test_tables_keep_no_light_names(tmp_path):
    clock, config = ManualClock(), BrokerConfig(broker_name="b")
    topics = TopicTable(tmp_path, clock, config, has_lmq=True)
    groups = GroupTable(tmp_path, clock, config, has_lmq=True)
    topic, group = topics.get(LMQ), groups.find(GROUP)
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
    assert groups.get(GROUP) == group
    is_changed = topics.update(topic)
    assert not is_changed
    is_changed = groups.update(group)
    assert not is_changed
    assert not topics.all()
    assert not groups.all()
    assert topics.get("T") is None


def test_offsets_of_light_groups_are_in_java_s_form(tmp_path):
    clock = ManualClock()
    (tmp_path / "consumerOffset.json").write_text('{"offsetTable":{"T@old":{0:4}}}')
    table = OffsetTable(tmp_path, clock, 1, has_lmq=True)
    table.load()
    assert table.query("old", "T", 0) == 4
    table.commit("c", GROUP, LMQ, 3, 7)
    table.commit("c", "G", LMQ, 0, 5)
    assert table.query(GROUP, LMQ, 9) == 7
    table.write(table.snapshot())
    file = tmp_path / "lmqConsumerOffset.json"
    text = file.read_text()
    assert json.loads(text)["lmqOffsetTable"] == {f"{LMQ}@{GROUP}": 7}
    assert f"{LMQ}@G" in text
    assert text.count("offsetTable") == 1
    again = OffsetTable(tmp_path, clock, 1, has_lmq=True)
    again.load()
    assert again.all() == {
        "T@old": {0: 4},
        f"{LMQ}@{GROUP}": {0: 7},
        f"{LMQ}@G": {0: 5},
    }
    again.remove_group(GROUP)
    again.write(again.snapshot())
    assert json.loads(file.read_text())["lmqOffsetTable"] == {}


def test_a_slave_copies_offsets_of_light_groups(tmp_path, light):
    for group, queue_id in ((GROUP, 0), ("G", 0)):
        light.broker.offsets.commit("c", group, LMQ, queue_id, 3)
    body = light.call(43).body
    slave = OffsetTable(tmp_path, ManualClock(), 1, has_lmq=True)
    slave.copy(body)
    assert slave.all() == light.broker.offsets.all()
