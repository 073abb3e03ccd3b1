"""Compiled code and protobuf encode the same bytes for the messages of a receive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.http2.message_encoder import MessageEncoder
from rmq._fastpath.log.encode import RecordEncoder
from rmq.protocol.handles import PopHandle
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import decode_stored_at
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.messages import (
    PADDED_LANGUAGES,
    RESERVED,
    encode_received,
)

IPV4, IPV6 = host_bytes("10.1.0.255", 40_001), host_bytes("2001:db8::1", 40_001)
POP_MS, INVISIBLE_MS, REVIVE_QUEUE = 1_795_230_112_758, 30_000, 3
ENCODER = MessageEncoder("broker-a", reserved_names=RESERVED)


def record(properties="UNIQ_KEY\x0101AB\x02", **fields):
    encoder = RecordEncoder(fields.pop("store_host", IPV4))
    values = {
        "topic": b"T",
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": 7,
        "flag": 0,
        "sys_flag": 0,
        "born_ms": POP_MS - 5,
        "born_host": IPV4,
        "store_ms": POP_MS - 2,
        "reconsume_times": 0,
        "prepared_offset": 0,
        "body": b"body",
        **fields,
    }
    text = properties if isinstance(properties, bytes) else properties.encode()
    encoder.stage(*values.values(), text)
    return encoder.staged_bytes()


def compiled(*records, starts=None, topic="T", language="JAVA"):
    return ENCODER.encode(
        b"".join(records),
        topic,
        {0: 0} if starts is None else starts,
        pop_ms=POP_MS,
        invisible_ms=INVISIBLE_MS,
        revive_queue=REVIVE_QUEUE,
        is_padded=language in PADDED_LANGUAGES,
    )


def expected(data, starts, topic="T", language="JAVA"):
    """(message, handle) of a record, by protobuf."""
    stored = decode_stored_at(data, 0)
    handle = PopHandle(
        starts.get(stored.queue_id, stored.queue_offset),
        POP_MS,
        INVISIBLE_MS,
        REVIVE_QUEUE,
        "0",
        "broker-a",
    )
    offset = int(stored.queue_offset)
    receipt = Receipt(handle, stored.queue_id, offset, stored.physical_offset)
    earlier = stored.reconsume_times
    message = encode_received(stored, topic, language, receipt=receipt, earlier=earlier)
    return message, receipt.text


PLAIN = [
    {},
    {"body": b""},
    {"body": b"x" * 300},
    {"body": b"\x00" * 70_000},
    {"queue_id": 3, "queue_offset": 1 << 40, "physical_offset": 1 << 50},
    {"reconsume_times": 5},
    {"sys_flag": 1},
    {"born_ms": 0, "store_ms": 1_000},
    {"properties": "UNIQ_KEY\x01A\x02TAGS\x01TagA\x02KEYS\x01k1  k2 \x02"},
    {"properties": "a\x01b\x02UNIQ_KEY\x01A\x02c\x01d\x02WAIT\x01true\x02a\x01e"},
    {"properties": "UNIQ_KEY\x01A\x02__SHARDINGKEY\x01g\x02TRACE_CONTEXT\x01t"},
    {"properties": "UNIQ_KEY\x01A\x02TIMER_DELIVER_MS\x011795230112758\x02"},
    {"properties": "UNIQ_KEY\x01A\x02TRAN_MSG\x01true\x02__BORNHOST\x01host\x02"},
    {"properties": "UNIQ_KEY\x01A\x02" + "".join(f"p{i}\x01v\x02" for i in range(63))},
    {"properties": "UNIQ_KEY\x01A\x02big\x01" + "x" * 20_000},
    {"properties": "UNIQ_KEY\x01A\x02KEYS\x01" + "k " * 9_000},
]


@pytest.mark.parametrize("language", ["JAVA", "PYTHON"])
@pytest.mark.parametrize("fields", PLAIN, ids=range(len(PLAIN)))
def test_plain_records(fields, language):
    data = record(**fields)
    starts = {0: 0, 3: 9}
    [(position, message, handle, earlier)] = compiled(
        data, starts=starts, language=language
    )
    assert (message, handle) == expected(data, starts, language=language)
    assert (position, earlier) == (0, fields.get("reconsume_times", 0))


def test_a_queue_without_a_start():
    data = record(queue_offset=12)
    [(_, message, handle, _)] = compiled(data, starts={})
    assert (message, handle) == expected(data, {})
    assert handle.startswith("12 ")


LEFT_TO_PYTHON = [
    {"properties": ""},
    {"properties": "UNIQ_KEY\x01\u4e2d\x02"},
    {"properties": "UNIQ_KEY\x01A\x02a\x01\n\x02"},
    {"properties": "UNIQ_KEY\x01A\x02POP_CK\x010 1 2 3 1 b 0 0\x02"},
    {"properties": "UNIQ_KEY\x01A\x02__LITE_TOPIC\x01a\x02"},
    {"properties": "UNIQ_KEY\x01A\x02TIMER_DELIVER_MS\x01007\x02"},
    {"properties": "UNIQ_KEY\x01A\x02" + "".join(f"p{i}\x01v\x02" for i in range(64))},
    {"born_host": IPV6, "sys_flag": 0x10},
    {"store_host": IPV6, "sys_flag": 0x20},
    {"born_ms": -1},
    {"reconsume_times": -1},
    {"queue_id": -1},
]


@pytest.mark.parametrize("fields", LEFT_TO_PYTHON, ids=range(len(LEFT_TO_PYTHON)))
def test_records_that_python_encodes(fields):
    first = record()
    found = compiled(first, record(**fields), first)
    assert [message is None for _, message, _, _ in found] == [False, True, False]
    assert found[1][2] == ""
    assert found[2][1:] == found[0][1:]


def test_no_record_and_half_a_record():
    assert compiled() == []
    with pytest.raises(ValueError, match="no record at 0"):
        compiled(record()[:-1])
    with pytest.raises(ValueError, match="no record at"):
        compiled(record(), bytes(9))


TEXTS = st.text(st.sampled_from("ab |\x01\x02\u00e9~\n0"), max_size=6)
NAMES = st.sampled_from(
    ["UNIQ_KEY", "TAGS", "KEYS", "TIMER_DELIVER_MS", "__SHARDINGKEY", "a", "b", "WAIT",
     "TRAN_MSG", "TRACE_CONTEXT", "__BORNHOST", "__LITE_TOPIC", ""]
)  # fmt: skip
PROPERTIES = st.lists(
    st.tuples(NAMES, st.one_of(TEXTS, st.integers(0, 1 << 60).map(str))), max_size=8
).map(lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs))


@st.composite
def made_records(draw):
    return record(
        "UNIQ_KEY\x01A\x02" * draw(st.integers(0, 1)) + draw(PROPERTIES),
        queue_id=draw(st.integers(0, 3)),
        queue_offset=draw(st.integers(0, 1 << 62)),
        physical_offset=draw(st.integers(0, 1 << 58)),
        sys_flag=draw(st.sampled_from([0, 1, 4, 8])),
        born_ms=draw(st.integers(0, 1 << 46)),
        store_ms=draw(st.integers(0, 1 << 46)),
        reconsume_times=draw(st.integers(0, 1 << 30)),
        body=draw(st.binary(max_size=40)),
    )


@given(
    records=st.lists(made_records(), max_size=5),
    starts=st.dictionaries(st.integers(0, 3), st.integers(0, 1 << 50)),
    language=st.sampled_from(["JAVA", "RUST"]),
    topic=st.sampled_from(["T", "\u4e2d", "t" * 127]),
)
def test_records_of_any_kind(records, starts, language, topic):
    found = compiled(*records, starts=starts, language=language, topic=topic)
    assert len(found) == len(records)
    for data, (_, message, handle, _) in zip(records, found, strict=True):
        if message is not None:
            assert (message, handle) == expected(data, starts, topic, language)
