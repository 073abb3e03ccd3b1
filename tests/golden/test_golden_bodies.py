"""Recorded bodies read as typed values; no recorded member is lost."""

import zlib

from rmq.protocol import fastjson
from rmq.protocol.batch import decode_batch, encode_batch
from rmq.protocol.bodies import (
    common,
    data_version,
    groups,
    heartbeat,
    queues,
    register,
    route,
    topics,
)
from rmq.protocol.frames import decode
from rmq.protocol.records import decode_stored

REQUESTS = {
    18: topics.CreateTopicListRequestBody,
    34: heartbeat.HeartbeatData,
    41: queues.LockBatchRequestBody,
    42: queues.UnlockBatchRequestBody,
    46: heartbeat.CheckClientRequestBody,
    103: register.RegisterBrokerBody,
    200: groups.SubscriptionGroupConfig,
    217: route.TopicRouteData,
    225: groups.SubscriptionGroupList,
    322: data_version.DataVersion,
    400: queues.QueryAssignmentRequestBody,
    401: queues.SetMessageRequestModeRequestBody,
}

ANSWERS = {
    21: topics.TopicConfigAndMappingSerializeWrapper,
    28: common.KVTable,
    38: heartbeat.GetConsumerListByGroupResponseBody,
    41: queues.LockBatchResponseBody,
    43: queues.ConsumerOffsetSerializeWrapper,
    103: common.KVTable,
    105: route.TopicRouteData,
    106: route.ClusterInfo,
    201: groups.SubscriptionGroupWrapper,
    202: topics.TopicStatsTable,
    203: heartbeat.ConsumerConnection,
    204: heartbeat.ProducerConnection,
    206: common.TopicList,
    208: groups.ConsumeStats,
    219: common.KVTable,
    222: queues.ResetOffsetBody,
    224: common.TopicList,
    300: common.GroupList,
    304: common.TopicList,
    305: common.TopicList,
    322: data_version.DataVersion,
    328: heartbeat.ProducerTableInfo,
    343: common.TopicList,
    345: groups.QuerySubscriptionResponseBody,
    351: topics.TopicConfigAndQueueMapping,
    352: groups.SubscriptionGroupConfig,
    400: queues.QueryAssignmentResponseBody,
    402: queues.MessageRequestModeSerializeWrapper,
    901: route.GetBrokerMemberGroupResponseBody,
}

WITH_RECORDS = {11, 12, 33, 361}
LEFT_OUT = ("enableActingMaster", False)


def typed_class(frame, code):
    if frame.kind == "response":
        return ANSWERS.get(frame.answers) if code == 0 else None
    return REQUESTS.get(code)


def assert_kept(sent, kept, name=""):
    """Everything sent is in what was kept, which may have defaults besides."""
    if isinstance(sent, dict):
        for key, value in sent.items():
            if (key, value) != LEFT_OUT:
                assert key in kept, f"{name}.{key} got lost"
                assert_kept(value, kept[key], f"{name}.{key}")
    elif isinstance(sent, list):
        assert len(sent) == len(kept), name
        for index, (item, other) in enumerate(zip(sent, kept, strict=True)):
            assert_kept(item, other, f"{name}[{index}]")
    elif isinstance(kept, str) and isinstance(sent, int):
        assert kept in heartbeat_names(sent), name
    else:
        assert str(sent) == str(kept), name


def heartbeat_names(ordinal):
    """Names that an ordinal of a C++ heartbeat may stand for."""
    kinds = heartbeat.ConsumeType, heartbeat.MessageModel, heartbeat.ConsumeFromWhere
    return {list(kind)[ordinal] for kind in kinds if ordinal < len(kind)}


def is_json_of(frame, command):
    return command.body and not command.body.startswith((b"garbage", b"{garbage"))


def test_typed_bodies(recording, request):
    for frame in recording:
        command = decode(frame.raw)
        kind = typed_class(frame, command.code)
        if kind is None or not is_json_of(frame, command):
            continue
        body = kind.decode(command.body)
        written = body.encode()
        assert kind.decode(written) == body
        assert_kept(fastjson.load_json(command.body), fastjson.load_json(written))


def test_records_in_answers(recording):
    for frame in recording:
        command = decode(frame.raw)
        if frame.answers not in WITH_RECORDS or command.code != 0:
            continue
        records = decode_stored(command.body)
        assert sum(record.size for record in records) == len(command.body)
        for record in records:
            assert zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc
            assert len(record.offset_msg_id) in (32, 56)
            assert record.topic


def test_batches(recording):
    for frame in recording:
        if frame.kind == "response" or frame.header["code"] != 320:
            continue
        body = decode(frame.raw).body
        if body.startswith(b"\0\0\0"):
            items = decode_batch(body)
            assert items
            assert encode_batch(items) == body
