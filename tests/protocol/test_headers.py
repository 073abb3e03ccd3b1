import importlib
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq.core.errors import LocalProtocolError, RequestRejected
from rmq.protocol.headers import I32, I64, Header, RpcHeader, TopicHeader, controller
from rmq.protocol.headers.client import UnregisterClientRequestHeader
from rmq.protocol.headers.offsets import BoundaryType, SearchOffsetRequestHeader
from rmq.protocol.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    decode_send_header,
)


class Sample(Header, kw_only=True):
    topic: str
    queue_id: I32
    commit_offset: I64 = -1
    is_order: bool = False
    tag: str | None = None
    count: I32 | None = None


def test_names_on_the_wire():
    header = Sample(topic="T", queue_id=1, is_order=True)
    assert header.encode() == {
        "topic": "T",
        "queueId": "1",
        "commitOffset": "-1",
        "isOrder": "true",
    }


def test_odd_names_on_the_wire():
    assert UnregisterClientRequestHeader(client_id="c").encode() == {"clientID": "c"}
    assert set(TopicHeader(ns="n", nsd=True, bname="b", oway=False, lo=True).encode()) \
        == {"ns", "nsd", "bname", "oway", "lo"}  # fmt: skip
    assert RpcHeader().encode() == {}


@given(
    st.builds(
        Sample,
        topic=st.text(),
        queue_id=st.integers(-(2**31), 2**31 - 1),
        commit_offset=st.integers(-(2**63), 2**63 - 1),
        is_order=st.booleans(),
        tag=st.none() | st.text(),
        count=st.none() | st.integers(0, 100),
    )
)
def test_round_trip(header):
    assert Sample.decode(header.encode()) == header


def test_unknown_fields_are_ignored():
    assert Sample.decode({"topic": "T", "queueId": "1", "AccessKey": ""}).topic == "T"


def test_text_that_reads_like_something_else_stays_text():
    for text in ("null", "true", "12", ""):
        header = Sample.decode({"topic": text, "queueId": "1", "tag": text})
        assert (header.topic, header.tag) == (text, text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("-0", 0), ("+5", 5), ("007", 7), ("-2147483648", -(2**31))],
)
def test_numbers_as_java_reads_them(text, value):
    assert Sample.decode({"topic": "T", "queueId": text}).queue_id == value


@pytest.mark.parametrize(
    "text",
    ["", " 5", "5 ", "abc", "1_000", "0x10", "2147483648", "-2147483649", "9" * 30],
)
def test_what_is_no_number_names_its_field(text):
    with pytest.raises(RequestRejected, match=r"Sample: the field queueId is"):
        Sample.decode({"topic": "T", "queueId": text})


def test_optional_fields_must_be_right_too():
    with pytest.raises(RequestRejected, match="count"):
        Sample.decode({"topic": "T", "queueId": "1", "count": "many"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("TRUE", True), ("1", True), ("false", False), ("yes", False)],
)
def test_whatever_is_not_true_is_false(text, value):
    header = Sample.decode({"topic": "T", "queueId": "1", "isOrder": text})
    assert header.is_order is value


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from("abcdefghijklmnop"), st.text(max_size=5)))
def test_a_send_header_is_read_or_rejected(ext_fields):
    for code in (10, 310, 320, 325):
        with suppress(RequestRejected):
            header = decode_send_header(code, ext_fields)
            assert isinstance(header, SendMessageRequestHeader)


def test_each_send_code_has_its_form():
    long_form = SendMessageRequestHeader(
        producer_group="g", topic="t", default_topic="d", default_topic_queue_nums=4,
        queue_id=0, sys_flag=0, born_timestamp=1, flag=0,
    ).encode()  # fmt: skip
    assert decode_send_header(10, long_form).topic == "t"
    assert decode_send_header(324, long_form).topic == "t"
    short = dict(zip("abcdefgh", long_form.values(), strict=True))
    for code in (310, 320, 325):
        header = decode_send_header(code, short)
        assert isinstance(header, SendMessageRequestHeaderV2)
        assert (header.producer_group, header.topic, header.flag) == ("g", "t", 0)


def test_values_that_have_no_text_are_our_mistake():
    header = Sample(topic="T", queue_id=1, tag=b"bytes")
    with pytest.raises(LocalProtocolError):
        header.encode()


@pytest.mark.parametrize(
    ("text", "boundary"),
    [("UPPER", "UPPER"), ("upper", "UPPER"), ("LOWER", "LOWER"), ("x", "LOWER"),
     (None, "LOWER")],
)  # fmt: skip
def test_boundary(text, boundary):
    header = SearchOffsetRequestHeader(
        topic="T", queue_id=0, timestamp=1, boundary_type=text
    )
    assert header.end_boundary is BoundaryType(boundary)


def sample_value(field):
    """A value of the field's type that is not its default."""
    text = str(field.type)
    if "bool" in text:
        return field.default is not True
    return 7 if "int" in text else "text"


@pytest.mark.parametrize(
    "area",
    ["admin", "client", "cluster", "groups", "offsets", "pull", "query", "route",
     "send", "transaction"],
)  # fmt: skip
def test_all_headers_survive_a_round_trip(area):
    module = importlib.import_module(f"rmq.protocol.headers.{area}")
    kinds = [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Header)
    ]
    assert kinds
    for kind in kinds:
        fields = msgspec.structs.fields(kind)
        header = kind(**{field.name: sample_value(field) for field in fields})
        written = header.encode()
        assert len(written) == len(fields)
        assert kind.decode(written) == header


def test_header_with_what_java_leaves_out_and_with_its_defaults():
    assert controller.ElectMasterRequestHeader.decode({}).broker_id == -1
    header = controller.GetMetaDataResponseHeader.decode({"isLeader": "true"})
    assert header.is_leader
    assert header.controller_leader_address is None
    request = controller.CleanControllerBrokerDataRequestHeader(broker_name="b")
    assert request.encode() == {"brokerName": "b", "isCleanLivingBroker": "false"}
