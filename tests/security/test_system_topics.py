"""Topics of the broker itself: no client writes there, and all others stay open."""

import pytest

SYSTEM = [
    "SCHEDULE_TOPIC_XXXX",
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT",
    "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
    "rmq_sys_SYNC_BROKER_MEMBER_broker-a",
    "rmq_sys_anything",
]
HALF = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02"


@pytest.mark.parametrize("topic", SYSTEM)
@pytest.mark.parametrize("code", [10, 320, 324])
@pytest.mark.parametrize("properties", ["", HALF])
def test_nobody_sends_to_a_topic_of_the_system(caller, topic, code, properties):
    end = caller.broker.store.log.end_offset
    fields = {"topic": topic, "properties": properties, "code": code}
    if code == 320:
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 5,
            "h": 0, "i": properties, "m": "true", "code": code,
        }  # fmt: skip
    answer = caller.send(**fields)
    remark = f"Sending message to topic[{topic}] is forbidden."
    assert (answer.code, answer.remark) == (16, remark)
    assert caller.broker.store.log.end_offset == end


@pytest.mark.parametrize("topic", [
    "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_cn-hangzhou", "BenchmarkTest", "TBW102",
])  # fmt: skip
def test_java_clients_send_to_these(caller, topic):
    assert caller.send(topic).code == 0
