from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.common import KVTable, MessageQueue
from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.groups import SubscriptionGroupConfig
from rmq.protocol.bodies.queues import (
    ConsumerOffsetSerializeWrapper,
    LockBatchRequestBody,
    LockBatchResponseBody,
)
from rmq.protocol.bodies.topics import TopicConfig, TopicOffset, TopicStatsTable
from rmq.protocol.codes import ResponseCode

QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)
i64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(DataVersion, state_version=i64, timestamp=i64, counter=i64))
def test_round_trip(version):
    assert DataVersion.decode(version.encode()) == version


def test_missing_and_null_have_the_default():
    assert TopicConfig.decode(b"{}") == TopicConfig()
    config = TopicConfig.decode(b'{"topicName":"T","perm":null,"attributes":null}')
    assert config == TopicConfig(topic_name="T")


def test_the_dialect_is_read():
    config = TopicConfig.decode(b"{topicName:'T',perm:\"4\",unknown:[1],}")
    assert config == TopicConfig(topic_name="T", perm=4)


def test_references_are_read():
    body = LockBatchRequestBody.decode(
        b'{"mqSet":[{"brokerName":"b","queueId":1,"topic":"T"},{"$ref":"$.mqSet[0]"}]}'
    )
    assert body.mq_set == [QUEUE, QUEUE]


def test_queues_as_names():
    table = TopicStatsTable(offset_table={QUEUE: TopicOffset(max_offset=3)})
    text = table.encode()
    assert text == (
        b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:'
        b'{"lastUpdateTimestamp":0,"maxOffset":3,"minOffset":0}},"topicPutTps":0.0}'
    )
    assert TopicStatsTable.decode(text) == table


def test_integer_names():
    text = b'{"offsetTable":{"T@g":{0:5,"1":6}}}'
    wrapper = ConsumerOffsetSerializeWrapper.decode(text)
    assert wrapper.offset_table == {"T@g": {0: 5, 1: 6}}
    assert b'"T@g":{"0":5,"1":6}' in wrapper.encode()


def test_odd_names():
    body = LockBatchResponseBody(locked=[QUEUE])
    assert body.encode() == (
        b'{"lockOKMQSet":[{"brokerName":"b","queueId":1,"topic":"T"}]}'
    )


def test_what_is_not_set_is_left_out():
    assert b"groupName" not in SubscriptionGroupConfig().encode()
    assert b"subscriptionDataSet" not in SubscriptionGroupConfig().encode()


@pytest.mark.parametrize(
    "text",
    [b"", b"garbage", b"[]", b"12", b'"x"', b'{"table":5}', b'{"table":{"a":[]}}',
     b"\xff", b"{" * 5000, b"[" * 500 + b"]" * 500],
)  # fmt: skip
def test_other_shapes_are_rejected(text):
    with pytest.raises(RequestRejected, match="KVTable") as caught:
        KVTable.decode(text)
    assert caught.value.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, '"many"', 1.5])
def test_numbers_that_do_not_fit(number):
    with pytest.raises(RequestRejected):
        TopicConfig.decode(b'{"perm":%s}' % str(number).encode())


@pytest.mark.parametrize("depth", [100, 500, 900, 5000, 100_000])
@pytest.mark.parametrize("name", ["unknown", "table", "$ref"])
def test_nesting_is_limited(depth, name):
    text = b'{"%s":%s1%s}' % (name.encode(), b'{"a":' * depth, b"}" * depth)
    with suppress(RequestRejected):
        assert KVTable.decode(text) == KVTable()


@given(st.binary(max_size=60))
def test_noise(noise):
    for kind in (TopicConfig, TopicStatsTable, LockBatchRequestBody):
        try:
            kind.decode(noise)
        except RequestRejected as error:
            assert kind.__name__ in error.remark  # noqa: PT017 - either is fine
