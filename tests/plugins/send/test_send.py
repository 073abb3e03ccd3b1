"""One message in: checks in their order, what is stored, what is answered."""

import pytest

from rmq.plugin import Held
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.properties import decode_properties
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from rmq.store.results import PutResult, PutStatus

FACTS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def stored(caller, topic="T", queue_id=0, offset=0):
    """Return a stored message of a queue."""
    result = caller.broker.store.reads.get(topic, queue_id, offset, 1)
    return decode_stored(result.body)[0]


def test_answer_says_where_the_message_is(caller):
    answer = caller.send(properties="TAGS\x01A\x02")
    record = stored(caller)
    assert answer.code == 0
    assert answer.remark is None
    assert answer.ext_fields == {
        "msgId": record.offset_msg_id,
        "queueId": "0",
        "queueOffset": "0",
        "transactionId": record.properties["UNIQ_KEY"],
        **FACTS,
    }


def test_record_holds_what_was_sent(caller):
    caller.send(flag=7, sysFlag=1, reconsumeTimes=3, properties="TAGS\x01A\x02")
    record = stored(caller)
    assert (record.body, record.flag, record.sys_flag) == (b"hello", 7, 1)
    assert (record.reconsume_times, record.born_timestamp) == (3, 1_795_230_112_758)
    assert record.born_host == caller.connection.remote_host
    assert set(record.properties) == {
        "TAGS", "UNIQ_KEY", "MSG_REGION", "TRACE_ON", "CLUSTER",
    }  # fmt: skip
    assert record.properties["CLUSTER"] == "DefaultCluster"


def test_short_header_means_the_same(caller):
    fields = {
        "a": "PG", "b": "T", "c": "TBW102", "d": 4, "e": 1, "f": 0, "g": 5, "h": 0,
        "i": "TAGS\x01A\x02", "j": 0, "k": "false", "m": "false",
    }  # fmt: skip
    answer = caller.call(310, fields, b"hello")
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "1")
    assert stored(caller, queue_id=1).properties["TAGS"] == "A"


def test_plain_property_text_is_stored_as_it_came(caller):
    text = "KEYS\x01k1 k2\x02UNIQ_KEY\x01AA\x02WAIT\x01true\x02"
    answer = caller.send(properties=text)
    assert answer.ext_fields["transactionId"] == "AA"
    assert stored(caller).properties_text == (
        text + "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
        "CLUSTER\x01DefaultCluster\x02"
    )


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("a\x01b", {"a": "b"}, id="no end"),
        pytest.param("a\x01b\x02a\x01c\x02", {"a": "c"}, id="twice"),
        pytest.param("a\x01\x02b\x01c\x02", {"b": "c"}, id="empty value"),
        pytest.param("junk\x02a\x01b\x02", {"a": "b"}, id="no pair"),
        pytest.param("POP_CK\x010 1\x02a\x01b\x02", {"a": "b"}, id="pop handle"),
        pytest.param("MSG_REGION\x01x\x02a\x01b\x02", {"a": "b"}, id="own name"),
    ],
)
def test_odd_property_text_is_written_anew(caller, text, kept):
    caller.send(properties=text)
    record = stored(caller)
    properties = record.properties
    assert record.properties_text.count("\x02") == len(properties)
    for name in ("MSG_REGION", "TRACE_ON", "CLUSTER", "UNIQ_KEY"):
        value = properties.pop(name)
        assert value
    assert properties == kept


def test_message_without_properties(caller):
    assert caller.send(properties=None).code == 0
    assert "UNIQ_KEY" in stored(caller).properties


def test_ipv6_sender_and_multi_tags_set_flags(caller):
    caller.topic("M", topic_filter_type="MULTI_TAG")
    caller.connection.remote_host = host_bytes("::1", 5)
    caller.send("M", sysFlag=0x20)
    assert stored(caller, "M").sys_flag == 0x12


def test_negative_queue_id_is_any_writable_queue(caller):
    caller.topic("W", queues=3)
    seen = {caller.send("W", queueId=-1).ext_fields["queueId"] for _ in range(60)}
    assert seen == {"0", "1", "2"}


@pytest.mark.parametrize(
    ("properties", "queue_id", "is_kept"),
    [
        ("_SYS_MSG_PRIORITY_\x010\x02", "0", True),
        ("_SYS_MSG_PRIORITY_\x019\x02", "2", True),
        ("_SYS_MSG_PRIORITY_\x01-3\x02", "1", True),
        ("_SYS_MSG_PRIORITY_\x01abc\x02", "1", True),
        ("_SYS_MSG_PRIORITY_\x012\x02__SHARDINGKEY\x01k\x02", "1", False),
    ],
)
def test_priority_chooses_the_queue(caller, properties, queue_id, is_kept):
    caller.topic("P", queues=3)
    answer = caller.send("P", queueId=1, properties=properties)
    assert answer.ext_fields["queueId"] == queue_id
    record = stored(caller, "P", int(queue_id))
    assert ("_SYS_MSG_PRIORITY_" in record.properties) == is_kept


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": ""}, 29, "The specified topic is blank."),
        ({"topic": "a b"}, 29, "illegal characters"),
        ({"topic": "../../x"}, 29, "illegal characters"),
        ({"topic": "x" * 128}, 29, "longer than topic max length: 127"),
        ({"topic": "%RETRY%" + "x" * 250}, 29, "max length: 255"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 16, "is forbidden"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 16, "is forbidden"),
        ({"topic": "New", "defaultTopic": "Nothing"}, 17, "topic[New] not exist"),
        ({"queueId": 2}, 29, "request queueId[2] is illegal"),
        ({"queueId": 2**31 - 1}, 29, "is illegal"),
        ({"properties": "a\x01" + "p" * 33_000 + "\x02"}, 13, "properties length"),
        ({"properties": "TIMER_DELAY_SEC\x01300000\x02"}, 13, "timer message illegal"),
    ],
)
def test_refused_with_the_facts(caller, fields, code, remark):
    answer = caller.send(**fields)
    assert answer.code == code
    assert remark in answer.remark
    assert answer.ext_fields == FACTS
    assert caller.broker.store.log.end_offset == 0


@pytest.mark.parametrize(
    ("properties", "code", "remark"),
    [
        ("DELAY\x013\x02", 1, "no plugin serves the property DELAY"),
        ("TRAN_MSG\x01true\x02", 16, "transaction message"),
    ],
)
def test_what_no_plugin_serves_is_refused(caller, properties, code, remark):
    caller.broker.put.set_interceptors([])
    answer = caller.send(properties=properties)
    assert answer.code == code
    assert remark in answer.remark
    assert caller.broker.store.log.end_offset == 0


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": None}, "topic"),
        ({"bornTimestamp": None}, "bornTimestamp"),
        ({"sysFlag": "abc"}, "sysFlag"),
        ({"queueId": 2**31}, "queueId"),
        ({"bornTimestamp": "9" * 30}, "bornTimestamp"),
    ],
)
def test_bad_header_field_is_named(caller, fields, field):
    answer = caller.send(**fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert field in answer.remark
    assert caller.broker.store.log.end_offset == 0


def test_empty_body(caller):
    answer = caller.send(body=b"")
    assert (answer.code, answer.remark) == (1, "the message has no body")


def test_body_over_the_limit(caller):
    assert caller.send(body=bytes(4 << 20)).code == 0
    answer = caller.send(body=bytes((4 << 20) + 1))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "msg body length limit 4194304B" in answer.remark


@pytest.mark.parametrize("queue_id", [-1, 0])
def test_topic_without_queues(caller, queue_id):
    caller.topic("Z", queues=0)
    answer = caller.send("Z", queueId=queue_id)
    assert (answer.code, answer.ext_fields) == (29, FACTS)


def test_write_permission_of_a_topic_is_not_asked(caller):
    caller.topic("R", perm=4)
    assert caller.send("R").code == 0


def test_topic_is_created_from_the_default_topic(caller):
    assert caller.send("Fresh", defaultTopicQueueNums=4, queueId=3).code == 0
    config = caller.broker.topics.get("Fresh")
    assert (config.write_queue_nums, config.perm) == (4, 6)
    refused = caller.send("Fresh2", defaultTopicQueueNums=4, queueId=4)
    assert refused.code == ResponseCode.INVALID_PARAMETER


def test_no_creation_if_switched_off(make_caller):
    caller = make_caller(auto_create_topic_enable=False)
    assert caller.send("Fresh").code == ResponseCode.TOPIC_NOT_EXIST


def test_broker_without_write_permission_refuses_order_topics_only(make_caller):
    caller = make_caller(broker_permission=4)
    caller.topic("O", order=True)
    assert caller.send("O").code == ResponseCode.NO_PERMISSION
    assert caller.send("T").code == 0


def test_not_before_the_configured_time(make_caller, clock):
    caller = make_caller(start_accept_send_request_time_stamp=clock.ms + 1)
    assert caller.send().code == ResponseCode.SYSTEM_ERROR
    clock.ms += 1
    assert caller.send().code == 0


def test_retry_message_of_an_unknown_group(make_caller):
    caller = make_caller(auto_create_subscription_group=False)
    answer = caller.send("%RETRY%G")
    assert (answer.code, answer.remark.split(",")[0]) == (
        26,
        "subscription group not exist",
    )


def test_retry_topic_is_created_without_a_default_topic(caller):
    assert caller.send("%RETRY%G", defaultTopic="Nothing").code == 0
    assert caller.broker.topics.get("%RETRY%G").write_queue_nums == 1


@pytest.mark.parametrize(
    ("times", "most", "version", "topic"),
    [
        (16, None, 513, "%RETRY%G"),
        (17, None, 513, "%DLQ%G"),
        (3, 2, 513, "%DLQ%G"),
        (2, 2, 513, "%RETRY%G"),
        (3, 2, 120, "%RETRY%G"),
    ],
)
def test_retry_message_that_came_too_often_is_dead(caller, times, most, version, topic):
    answer = caller.send(
        "%RETRY%G", reconsumeTimes=times, maxReconsumeTimes=most, version=version
    )
    assert answer.code == 0
    assert caller.broker.store.reads.max_offset(topic, 0) == 1
    assert stored(caller, topic).topic == topic


def test_dead_message_has_no_delay(caller):
    caller.broker.put.triggers.add("DELAY")
    caller.broker.groups.update(
        SubscriptionGroupConfig(group_name="G", retry_max_times=1)
    )
    caller.send("%RETRY%G", reconsumeTimes=2, properties="DELAY\x013\x02a\x01b\x02")
    properties = stored(caller, "%DLQ%G").properties
    assert "DELAY" not in properties
    assert properties["a"] == "b"


def test_what_a_plugin_serves_goes_to_the_pipeline(caller):
    caller.broker.put.triggers.update({"DELAY", "TRAN_MSG", "TIMER_DELAY_SEC"})
    text = "DELAY\x013\x02"
    assert caller.send(properties=text).code == 0
    assert caller.send(properties="TRAN_MSG\x01true\x02").code == 0
    assert caller.send(properties="TIMER_DELAY_SEC\x013\x02").code == 0


def test_transactions_may_be_refused_by_configuration(make_caller):
    caller = make_caller(reject_transaction_message=True)
    caller.broker.put.triggers.add("TRAN_MSG")
    assert (
        caller.send(properties="TRAN_MSG\x01true\x02").code
        == ResponseCode.NO_PERMISSION
    )


@pytest.mark.parametrize(
    ("status", "code", "is_sent"),
    [
        (PutStatus.PUT_OK, 0, True),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14, False),
        (PutStatus.CREATE_MAPPED_FILE_FAILED, 1, False),
        (PutStatus.MESSAGE_ILLEGAL, 13, False),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, 13, False),
    ],
)
def test_put_status_on_the_wire(make_caller_of, broker, status, code, is_sent):
    broker.put.put = lambda _message: PutResult(status, 5, 1_000, 1_100, 1)
    answer = make_caller_of(broker).send()
    assert answer.code == code
    assert ("msgId" in answer.ext_fields) == is_sent
    if not is_sent:
        assert answer.remark


def test_refusal_of_the_store_names_the_cause(caller):
    caller.broker.store.durability.refuse(
        RefusalKind.FLUSH_FAILED, "flushing 000 failed: no space"
    )
    answer = caller.send()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert answer.remark == "service not available now. flushing 000 failed: no space"


@pytest.fixture
def sync_caller(make_caller):
    return make_caller(
        store={"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout_ms": 70}
    )


def result_of(caller, properties):
    """Send, and return what the handler returned."""
    results = []
    handle = caller.handlers[10]
    caller.handlers[10] = lambda *given: results.append(handle(*given)) or results[0]
    caller.send(properties=properties)
    return results[0]


def test_sync_flush_holds_the_answer(sync_caller):
    held = result_of(sync_caller, "")
    assert isinstance(held, Held)
    assert held.end_offset == sync_caller.broker.store.log.end_offset
    assert held.timeout_ms == 70
    assert (held.response.code, held.on_timeout) == (0, None)


@pytest.mark.parametrize(
    ("wait", "is_held"),
    [("true", True), ("TRUE", True), ("false", False), ("x", False)],
)
def test_message_may_not_want_to_wait_for_the_disk(sync_caller, wait, is_held):
    held = result_of(sync_caller, f"WAIT\x01{wait}\x02")
    assert isinstance(held, Held) == is_held


def test_sends_of_one_connection_are_stored_in_order(caller):
    for number in range(20):
        answer = caller.send(body=b"%d" % number)
        assert answer.ext_fields["queueOffset"] == str(number)
    bodies = [stored(caller, offset=number).body for number in range(20)]
    assert bodies == [b"%d" % number for number in range(20)]


def test_unique_keys_differ_and_hold_the_time(caller, clock):
    keys = [caller.send().ext_fields["transactionId"] for _ in range(3)]
    assert len(set(keys)) == 3
    assert all(len(key) == 32 and key.startswith("7F000001") for key in keys)
    clock.ms += 1_000
    later = caller.send().ext_fields["transactionId"]
    assert int(later[20:28], 16) - int(keys[0][20:28], 16) == 1_000


def test_text_properties_reach_the_record(caller):
    caller.send(properties="Grüße\x01naïve 🙂\x02")
    text = stored(caller).properties_text
    assert decode_properties(text)["Grüße"] == "naïve 🙂"
