"""Recorded requests and answers read as typed headers, and written back."""

from contextlib import nullcontext, suppress

import pytest

from rmq.core.errors import RequestRejected
from rmq.protocol.frames import decode
from rmq.protocol.headers import (
    admin,
    client,
    cluster,
    groups,
    offsets,
    pop,
    pull,
    query,
    route,
    send,
    transaction,
)

REQUESTS = {
    10: send.SendMessageRequestHeader,
    11: pull.PullMessageRequestHeader,
    12: query.QueryMessageRequestHeader,
    14: offsets.QueryConsumerOffsetRequestHeader,
    15: offsets.UpdateConsumerOffsetRequestHeader,
    17: admin.CreateTopicRequestHeader,
    21: admin.GetAllTopicConfigRequestHeader,
    29: offsets.SearchOffsetRequestHeader,
    30: offsets.GetMaxOffsetRequestHeader,
    31: offsets.GetMinOffsetRequestHeader,
    32: offsets.GetEarliestMsgStoretimeRequestHeader,
    33: query.ViewMessageRequestHeader,
    35: client.UnregisterClientRequestHeader,
    36: send.ConsumerSendMsgBackRequestHeader,
    37: transaction.EndTransactionRequestHeader,
    38: groups.GetConsumerListByGroupRequestHeader,
    39: transaction.CheckTransactionStateRequestHeader,
    40: client.NotifyConsumerIdsChangedRequestHeader,
    100: route.PutKVConfigRequestHeader,
    101: route.GetKVConfigRequestHeader,
    102: route.DeleteKVConfigRequestHeader,
    103: route.RegisterBrokerRequestHeader,
    104: route.UnRegisterBrokerRequestHeader,
    105: route.GetRouteInfoRequestHeader,
    201: groups.GetAllSubscriptionGroupRequestHeader,
    202: admin.GetTopicStatsInfoRequestHeader,
    203: groups.GetConsumerConnectionListRequestHeader,
    204: groups.GetProducerConnectionListRequestHeader,
    205: route.WipeWritePermOfBrokerRequestHeader,
    207: groups.DeleteSubscriptionGroupRequestHeader,
    208: admin.GetConsumeStatsRequestHeader,
    215: admin.DeleteTopicRequestHeader,
    216: route.DeleteTopicFromNamesrvRequestHeader,
    217: route.RegisterTopicRequestHeader,
    219: route.GetKVListByNamespaceRequestHeader,
    222: offsets.ResetOffsetRequestHeader,
    223: client.GetConsumerStatusRequestHeader,
    224: cluster.GetTopicsByClusterRequestHeader,
    300: groups.QueryTopicConsumeByWhoRequestHeader,
    303: groups.QueryConsumeTimeSpanRequestHeader,
    307: client.GetConsumerRunningInfoRequestHeader,
    308: offsets.QueryCorrectionOffsetHeader,
    309: client.ConsumeMessageDirectlyResultRequestHeader,
    310: send.SendMessageRequestHeaderV2,
    314: offsets.CloneGroupOffsetRequestHeader,
    315: admin.ViewBrokerStatsDataRequestHeader,
    317: admin.GetConsumeStatsInBrokerHeader,
    320: send.SendMessageRequestHeaderV2,
    321: query.QueryConsumeQueueRequestHeader,
    322: route.QueryDataVersionRequestHeader,
    324: send.SendMessageRequestHeader,
    325: send.SendMessageRequestHeaderV2,
    326: send.ReplyMessageRequestHeader,
    327: route.AddWritePermOfBrokerRequestHeader,
    343: groups.QueryTopicsByConsumerRequestHeader,
    345: groups.QuerySubscriptionByConsumerRequestHeader,
    351: admin.GetTopicConfigRequestHeader,
    352: groups.GetSubscriptionGroupConfigRequestHeader,
    353: groups.UpdateGroupForbiddenRequestHeader,
    361: pull.PullMessageRequestHeader,
    370: send.RecallMessageRequestHeader,
    901: cluster.GetBrokerMemberGroupRequestHeader,
    904: cluster.BrokerHeartbeatRequestHeader,
    905: cluster.NotifyMinBrokerIdChangeRequestHeader,
    906: cluster.ExchangeHAInfoRequestHeader,
    908: cluster.ResetMasterFlushOffsetHeader,
    200050: pop.PopMessageRequestHeader,
    200051: pop.AckMessageRequestHeader,
    200052: pop.PeekMessageRequestHeader,
    200053: pop.ChangeInvisibleTimeRequestHeader,
    200054: pop.NotificationRequestHeader,
    200055: pop.PollingInfoRequestHeader,
}

ANSWERS = {
    10: send.SendMessageResponseHeader,
    11: pull.PullMessageResponseHeader,
    12: query.QueryMessageResponseHeader,
    14: offsets.QueryConsumerOffsetResponseHeader,
    21: admin.GetAllTopicConfigResponseHeader,
    26: admin.GetBrokerConfigResponseHeader,
    29: offsets.SearchOffsetResponseHeader,
    30: offsets.GetMaxOffsetResponseHeader,
    31: offsets.GetMinOffsetResponseHeader,
    32: offsets.GetEarliestMsgStoretimeResponseHeader,
    101: route.GetKVConfigResponseHeader,
    103: route.RegisterBrokerResponseHeader,
    205: route.WipeWritePermOfBrokerResponseHeader,
    310: send.SendMessageResponseHeader,
    320: send.SendMessageResponseHeader,
    322: route.QueryDataVersionResponseHeader,
    327: route.AddWritePermOfBrokerResponseHeader,
    361: pull.PullMessageResponseHeader,
    370: send.RecallMessageResponseHeader,
    906: cluster.ExchangeHAInfoResponseHeader,
    200050: pop.PopMessageResponseHeader,
    200053: pop.ChangeInvisibleTimeResponseHeader,
}

OF_NO_HEADER = {
    # signatures, vendor marks and tracing, which the dispatcher or the guards read
    "AccessKey", "Signature", "OnsChannel", "ReqT", "MSG_REGION", "TRACE_ON",
    "_UNIQUE_KEY_QUERY", "unknownField",
}  # fmt: skip


def typed_class(frame, code):
    if frame.kind == "response":
        return ANSWERS.get(frame.answers) if code == 0 else None
    return REQUESTS.get(code)


def check_round_trip(kind, ext_fields):
    header = kind.decode(ext_fields)
    written = header.encode()
    assert kind.decode(written) == header
    for name in ext_fields.keys() & written.keys():
        if written[name] in ("true", "false"):  # C++ clients write 0 and 1
            assert ext_fields[name] in (written[name], "0", "1", "maybe")
        else:
            assert written[name] == ext_fields[name]
    return ext_fields.keys() - written.keys() - OF_NO_HEADER


def test_typed_headers(recording, request):
    is_probe = "probe-" in request.node.callspec.id
    for frame in recording:
        command = decode(frame.raw)
        kind = typed_class(frame, command.code)
        if kind is None:
            continue
        with suppress(RequestRejected) if is_probe else nullcontext():
            unknown = check_round_trip(kind, command.ext_fields)
            assert is_probe or not unknown, (kind.__name__, unknown)


@pytest.mark.parametrize("code", [10, 310])
def test_both_forms_of_a_send_mean_the_same(code):
    values = {
        "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "-1", "sysFlag": "0",
        "bornTimestamp": "1795229297377", "flag": "7", "properties": "TAGS\x01A\x02",
        "reconsumeTimes": "0", "unitMode": "false", "maxReconsumeTimes": "3",
        "batch": "true", "bname": "b",
    }  # fmt: skip
    if code == 310:
        values = dict(zip("abcdefghijklmn", values.values(), strict=True))
    header = send.decode_send_header(code, values)
    assert header.encode() == values
    assert (header.producer_group, header.topic, header.queue_id) == ("PG", "T", -1)
    assert (header.batch, header.broker_name) == (True, "b")
