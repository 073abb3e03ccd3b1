"""Codes, names and header fields against what reflection found in Java 5.5.0."""

import json

import msgspec
import pytest

from rmq.protocol import properties
from rmq.protocol.bodies import Body, groups, heartbeat, route, topics
from rmq.protocol.codes import WIRE_VERSION, RequestCode, ResponseCode, Version
from rmq.protocol.headers import (
    Header,
    RpcHeader,
    TopicHeader,
    admin,
    client,
    cluster,
    controller,
    offsets,
    pull,
    query,
    send,
    transaction,
)
from rmq.protocol.headers import groups as group_headers
from rmq.protocol.headers import route as route_headers

MODULES = (
    admin, client, cluster, controller, group_headers, offsets, pull, query,
    route_headers, send, transaction,
)  # fmt: skip
INHERITED = {*RpcHeader.__struct_encode_fields__, *TopicHeader.__struct_encode_fields__}
OWN = {"remoteOffset", "removeOffset", "bname", "rmqSet"}
OTHER_FORMS = {"SendMessageRequestHeaderV2"}


@pytest.fixture(scope="module")
def facts(golden):
    return json.loads((golden / "facts-5.5.0.json").read_text())


def header_classes():
    return [
        value
        for module in MODULES
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Header)
        and value.__module__ == module.__name__
    ]


def test_request_codes(facts):
    assert {code.name: code.value for code in RequestCode} == facts["requestCodes"]


def test_response_codes(facts):
    assert {code.name: code.value for code in ResponseCode} == facts["responseCodes"]


def test_versions(facts):
    assert facts["versions"]["CURRENT_VERSION"] == WIRE_VERSION
    known = facts["versions"]
    assert all(known[v.name] == v for v in Version if v.name in known)


def test_property_names(facts):
    ours = {
        value
        for name, value in vars(properties).items()
        if name.isupper() and not name.startswith("_") and isinstance(value, str)
    }
    assert ours <= set(facts["properties"])
    assert len(ours) > 60


def test_header_fields(facts):
    for kind in header_classes():
        if kind.__name__ in OTHER_FORMS:
            continue
        fields = set(kind.__struct_encode_fields__)
        if issubclass(kind, RpcHeader):
            fields -= INHERITED
        assert fields - OWN == set(facts["headers"][kind.__name__]), kind.__name__


@pytest.mark.parametrize(
    "kind",
    [
        groups.SubscriptionGroupConfig,
        topics.TopicConfig,
        heartbeat.HeartbeatData,
        heartbeat.ConsumerData,
        route.QueueData,
    ],
)
def test_empty_bodies(facts, kind: type[Body]):
    expected = json.loads(facts["emptyBodies"][kind.__name__])
    assert msgspec.json.decode(kind().encode()) == expected
