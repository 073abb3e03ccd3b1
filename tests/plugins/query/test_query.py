"""Messages by key, unique key, tags and offset."""

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.protocol.codes import RequestCode, ResponseCode

FOREVER = {"beginTimestamp": 0, "endTimestamp": 2**63 - 1}


@pytest.fixture
def three(caller, clock):
    """Three messages, a second apart."""
    for i in range(3):
        properties = f"UNIQ_KEY\x01id{i}\x02KEYS\x01a k{i}\x02TAGS\x01red\x02"
        assert caller.send(properties=properties, body=b"%d" % i).code == 0
        clock.ms += 1_000
    return caller


def query(caller, key, **more):
    fields = {"topic": "T", "key": key, "maxNum": 10, **FOREVER, **more}
    return caller.call(RequestCode.QUERY_MESSAGE, fields)


def bodies(answer):
    position, found = 0, []
    while position < len(answer.body):
        record = decode_record(answer.body, position)
        found.append(record.body)
        position += record.size
    return found


@pytest.mark.parametrize("is_indexed", [False, True])
@pytest.mark.parametrize(
    ("key", "more", "found"),
    [
        ("a", {}, [b"0", b"1", b"2"]),
        ("a", {"maxNum": 2}, [b"1", b"2"]),
        ("a", {"maxNum": 1, "_UNIQUE_KEY_QUERY": "true"}, [b"0", b"1", b"2"]),
        ("k1", {"indexType": "K", "lastKey": ""}, [b"1"]),
        ("id2", {"indexType": "U"}, [b"2"]),
        ("red", {"indexType": "T"}, [b"0", b"1", b"2"]),
    ],
)
def test_messages_of_a_key(three, key, more, found, is_indexed):
    if is_indexed:
        three.broker.store.index.build()
    answer = query(three, key, **more)
    assert answer.code == 0
    assert bodies(answer) == found
    updated = answer.ext_fields["indexLastUpdatePhyoffset"]
    assert (updated != "0") is is_indexed


@pytest.mark.parametrize(
    ("key", "more"),
    [
        ("red", {}),
        ("a", {"indexType": "T"}),
        ("k9", {}),
        ("a", {"maxNum": 0}),
        ("a", {"topic": "Other"}),
        ("a", {"endTimestamp": 5}),
    ],
)
def test_nothing_found(three, key, more):
    answer = query(three, key, **more)
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    assert answer.remark == "can not find message, maybe time range not correct"
    assert set(answer.ext_fields.values()) == {"0"}


@pytest.mark.parametrize("is_indexed", [False, True])
def test_times_are_exact(three, clock, is_indexed):
    if is_indexed:
        three.broker.store.index.build()
    second = clock.ms - 2_000
    window = {"beginTimestamp": second, "endTimestamp": second}
    assert bodies(query(three, "a", **window)) == [b"1"]


def test_message_by_offset(three):
    first = three.broker.store.reads.record_at(0)
    answer = three.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": 0})
    assert (answer.code, answer.body) == (0, first)


@pytest.mark.parametrize("offset", [-1, 1, 4, 10**12])
def test_no_message_at_an_offset(three, offset):
    answer = three.call(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": offset})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"can not find message by the offset, {offset}"


@pytest.mark.parametrize("name", ["topic", "key", "maxNum", "beginTimestamp"])
def test_missing_field_is_named(three, name):
    fields = {"topic": "T", "key": "a", "maxNum": 1, **FOREVER}
    del fields[name]
    answer = three.call(RequestCode.QUERY_MESSAGE, fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert name in answer.remark
