"""Sending back: the next attempt, the last one, and what is refused."""

import pytest

from rmq.broker.audit import add_audit
from rmq.plugin import PutInterceptor
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.properties import decode_properties
from rmq.protocol.records import decode_stored
from rmq.store.durability import RefusalKind
from rmq_plugins.schedule.deliver import Deliveries


def stored(caller, topic, queue_id=0, offset=0):
    return decode_stored(
        caller.broker.store.reads.get(topic, queue_id, offset, 1).body
    )[0]


@pytest.fixture
def sent(caller):
    """The offset in the log of a message that a group G will give back."""
    caller.broker.groups.find("G")
    caller.send(body=b"work", properties="TAGS\x01A\x02KEYS\x01k\x02", flag=7)
    return stored(caller, "T").physical_offset


def give_back(caller, offset, level=0, version=513, **more):
    fields = {"offset": offset, "group": "G", "delayLevel": level, **more}
    return caller.call(36, fields, version=version)


def test_the_next_attempt_keeps_what_the_message_was(caller, sent):
    assert give_back(caller, sent).code == 0
    record = stored(caller, "SCHEDULE_TOPIC_XXXX", 2)
    original = stored(caller, "T")
    assert (record.body, record.flag, record.reconsume_times) == (b"work", 7, 1)
    assert record.born_timestamp == original.born_timestamp
    assert record.born_host == original.born_host
    expected = original.properties | {
        "RETRY_TOPIC": "T",
        "ORIGIN_MESSAGE_ID": original.offset_msg_id,
        "DELAY": "3",
        "WAIT": "false",
        "REAL_TOPIC": "%RETRY%G",
        "REAL_QID": "0",
    }
    assert record.properties == expected


def test_each_attempt_waits_longer_and_remembers_the_first(caller, sent):
    first_id = stored(caller, "T").offset_msg_id
    for attempt, level in enumerate((3, 4, 5)):
        assert give_back(caller, sent).code == 0
        record = stored(caller, "SCHEDULE_TOPIC_XXXX", level - 1)
        assert record.reconsume_times == attempt + 1
        assert record.properties["RETRY_TOPIC"] == "T"
        assert record.properties["ORIGIN_MESSAGE_ID"] == first_id
        sent = record.physical_offset


@pytest.mark.parametrize(("level", "queue"), [(1, 0), (18, 17), (99, 17)])
def test_the_consumer_may_name_the_level(caller, sent, level, queue):
    give_back(caller, sent, level)
    assert stored(caller, "SCHEDULE_TOPIC_XXXX", queue).body == b"work"


def dead_letter(caller):
    found = caller.broker.store.reads.get("%DLQ%G", 0, 0, 1)
    return decode_stored(found.body)[0] if found.message_count else None


@pytest.mark.parametrize(
    ("level", "version", "most", "dies"),
    [
        (-1, 513, 16, True),
        (0, 513, 0, True),
        (0, 121, 0, True),
        (0, 120, 0, False),
        (0, 513, 1, False),
        (0, 513, None, False),
    ],
)
def test_dead_letters(caller, sent, level, version, most, dies):
    more = {} if most is None else {"maxReconsumeTimes": most}
    assert give_back(caller, sent, level, version, **more).code == 0
    record = dead_letter(caller)
    assert (record is not None) == dies
    if record is not None:
        assert record.properties["DELAY"] == "0"
        assert record.reconsume_times == 1
        config = caller.broker.topics.get("%DLQ%G")
        assert (config.write_queue_nums, config.perm) == (1, 6)


def test_the_group_says_how_often(caller, sent):
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", retry_max_times=0)
    )
    assert give_back(caller, sent).code == 0
    assert dead_letter(caller).body == b"work"


def test_a_group_without_retry_queues_loses_the_message(caller, sent):
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", retry_queue_nums=0)
    )
    end = caller.broker.store.log.end_offset
    assert give_back(caller, sent).code == 0
    assert caller.broker.store.log.end_offset == end


def test_the_retry_topic_has_the_queues_of_its_group(caller, sent):
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", retry_queue_nums=3)
    )
    for _ in range(64):
        give_back(caller, sent, 1)
    assert caller.broker.topics.get("%RETRY%G").write_queue_nums == 3
    body = b""
    for offset in (0, 32):
        body += caller.broker.store.reads.get("SCHEDULE_TOPIC_XXXX", 0, offset, 32).body
    queues = {
        decode_properties(each.properties_text)["REAL_QID"]
        for each in decode_stored(body)
    }
    assert queues == {"0", "1", "2"}


@pytest.mark.parametrize("offset", [-1, 1, 2**40, 2**63 - 1])
def test_offsets_without_a_message(caller, sent, offset):
    answer = give_back(caller, offset)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"look message by offset failed, {offset}"


def test_unknown_group(make_caller):
    caller = make_caller(auto_create_subscription_group=False)
    answer = give_back(caller, 0)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert answer.remark.startswith("subscription group not exist, G")


def test_broker_that_may_not_be_written(make_caller):
    caller = make_caller(broker_permission=4)
    assert give_back(caller, 0).code == ResponseCode.NO_PERMISSION


def test_retry_topic_that_may_not_be_written(caller, sent):
    caller.topic("%RETRY%G", queues=1, perm=4)
    answer = give_back(caller, sent)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the topic[%RETRY%G] sending message is forbidden"


def test_a_name_that_would_become_a_path(caller, sent):
    answer = caller.call(36, {"offset": sent, "group": "../../x", "delayLevel": 0})
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert caller.broker.topics.get("%RETRY%../../x") is None


def test_without_the_schedule_plugin_nothing_comes_too_soon(caller, sent):
    caller.broker.put.set_interceptors(
        [PutInterceptor(frozenset({"X"}), lambda _: None)]
    )
    answer = give_back(caller, sent)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "schedule" in answer.remark
    assert caller.broker.store.reads.max_offset("%RETRY%G", 0) == 0


def test_a_store_that_takes_nothing_is_said_so(caller, sent):
    caller.broker.store.durability.refuse(RefusalKind.DISK_FULL, "no disk")
    answer = give_back(caller, sent)
    assert (answer.code, answer.remark) == (1, "SERVICE_NOT_AVAILABLE")


def test_retry_queues_that_are_raised_and_lowered_are_all_read(caller, sent, clock):
    """The group's number was taken for that of the topic: the route had one queue."""
    caller.broker.topics.ensure("%RETRY%G", queues=1, perm=6)
    raised = SubscriptionGroupConfig(group_name="G", retry_queue_nums=3)
    caller.broker.groups.update(raised)  # as an older broker did
    for _ in range(4):
        assert give_back(caller, sent, 1).code == 0
    for queues in (3, 1, 5, 2):
        body = b'{"groupName":"G","retryQueueNums":%d}' % queues
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        assert caller.call(code, {}, body).code == 0
        for _ in range(8):
            assert give_back(caller, sent, 1).code == 0
    clock.ms += 1_000
    while caller.find(Deliveries).deliver(1):
        pass
    topic = caller.broker.topics.get("%RETRY%G")
    assert topic.read_queue_nums == topic.write_queue_nums == 5
    max_offset = caller.broker.store.reads.max_offset
    counts = [max_offset("%RETRY%G", queue_id) for queue_id in range(9)]
    assert sum(counts[:5]) == 4 + 4 * 8
    assert not any(counts[5:])


def test_the_audit_has_the_wider_retry_topic(caller, sent):
    caller.broker.topics.ensure("%RETRY%G", queues=1, perm=6)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    handler = add_audit(caller.broker, code, caller.handlers[code])
    caller.handlers[code] = handler
    assert caller.call(code, {}, b'{"groupName":"G","retryQueueNums":3}').code == 0
    subjects = {change.subject: change.change for change in caller.broker.audit.all()}
    assert "readQueueNums 1 -> 3" in subjects["topic %RETRY%G"]
