import base64
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.reactor.header_scan import scan
from rmq.core.errors import RemoteProtocolError
from rmq.protocol.codes import LanguageCode, SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from tests.golden.recordings import read_rows

PLAIN = b'{"code":10,"flag":0,"language":"JAVA","opaque":7,"version":513}'

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
commands = st.builds(
    Command,
    st.integers(-(2**15), 2**15 - 1),
    st.dictionaries(texts, texts, max_size=8),
    st.just(b""),
    st.none() | texts,
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 3),
    st.sampled_from([language.name for language in LanguageCode]),
    st.integers(0, 2**15 - 1),
    st.sampled_from(SerializeType),
)


def header_of(frame: bytes) -> tuple[bytes, int]:
    (word,) = struct.unpack_from(">I", frame, 4)
    return frame[8 : 8 + (word & 0xFFFFFF)], word >> 24


def framed(header: bytes, kind: int = 0) -> bytes:
    return struct.pack(">iI", 4 + len(header), kind << 24 | len(header)) + header


def unescaped(value: bytes, kind: int) -> str:
    if kind == SerializeType.JSON:
        return json.loads(b'"' + value + b'"')
    return value.decode()


def assert_same(header: bytes, kind: int) -> None:
    """What the scanner accepts is what the protocol reads."""
    scanned = scan(header, kind)
    if scanned is None:
        return
    command = decode(framed(header, kind))
    assert scanned.code == command.code
    assert scanned.flag == command.flag
    assert scanned.opaque == command.opaque
    assert scanned.version == command.version
    fields = {
        name.decode(): unescaped(value, kind) for name, value in scanned.fields.items()
    }
    assert fields == command.ext_fields


@given(commands)
def test_accepted_headers_mean_what_the_protocol_reads(command):
    assert_same(*header_of(encode(command)))


@given(
    st.dictionaries(
        texts, st.integers() | st.integers(0, 99) | st.booleans() | texts, max_size=5
    )
)
def test_numbers_among_the_fields_mean_their_digits(fields):
    header = {"code": 11, "opaque": 7, "remark": "", "extFields": fields}
    assert_same(json.dumps(header, ensure_ascii=False).encode(), 0)
    del header["remark"]
    assert_same(json.dumps(header, separators=(",", ":")).encode(), 0)


def test_node_and_cpp_headers_are_accepted():
    fields = b'{"queueId":-5 , "a":0,"k":false}'
    header = b'{"code":11,"extFields":%b,"opaque":7,"remark":""}' % fields
    assert scan(header, 0).fields == {b"queueId": b"-5", b"a": b"0", b"k": b"false"}


@given(commands, st.data())
def test_a_changed_byte_never_changes_the_meaning(command, data):
    header, kind = header_of(encode(command))
    position = data.draw(st.integers(0, len(header) - 1))
    changed = bytearray(header)
    changed[position] = data.draw(st.integers(0, 255))
    try:
        assert_same(bytes(changed), kind)
    except RemoteProtocolError:
        pytest.fail(f"accepted what the protocol refuses: {bytes(changed)!r}")


@given(st.binary(max_size=80), st.integers(0, 2))
def test_garbage_is_declined_or_read_alike(header, kind):
    assert_same(header, kind)


@given(commands, st.data())
def test_a_cut_header_is_declined(command, data):
    header, kind = header_of(encode(command))
    assert scan(header[: data.draw(st.integers(0, len(header) - 1))], kind) is None


def test_plain_header_is_accepted():
    scanned = scan(PLAIN, 0)
    assert (scanned.code, scanned.opaque, scanned.version) == (10, 7, 513)


@pytest.mark.parametrize("remark", [None, "", "FOUND", "größe"])
def test_a_binary_header_with_a_remark_is_accepted(remark):
    """Java's broker says FOUND in the answer to a pull."""
    command = Command(0, {"a": "b"}, b"", remark, 7)
    command.serialize_type = SerializeType.ROCKETMQ
    header, kind = header_of(encode(command))
    scanned = scan(header, kind)
    assert (scanned.opaque, scanned.fields) == (7, {b"a": b"b"})


@pytest.mark.parametrize(
    ("size", "remark"),
    [(1, b"\xff"), (-1, b""), (5, b"FOUND"), (2**31 - 1, b"")],
)
def test_a_bad_remark_of_a_binary_header_is_declined(size, remark):
    header = struct.pack(">hBhiii", 0, 0, 0, 7, 0, size) + remark
    rest = b"" if size == 5 else struct.pack(">i", 0)
    assert scan(header + rest, SerializeType.ROCKETMQ) is None


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":10,"code":11,"opaque":7}',
        b'{"code":10,"opaque":7}x',
        b'{"code":10,"opaque":7,}',
        b'{"code":12abc,"opaque":7}',
        b'{"code":1.5,"opaque":7}',
        b'{"code":010,"opaque":7}',
        b'{"code":99999999999,"opaque":7}',
        b'{"code":10,"opaque":7,"extFields":{"a":1.0}}',
        b'{"code":10,"opaque":7,"extFields":{"a":1e3}}',
        b'{"code":10,"opaque":7,"extFields":{"a":-0}}',
        b'{"code":10,"opaque":7,"extFields":{"a":01}}',
        b'{"code":10,"opaque":7,"extFields":{"a":1x}}',
        b'{"code":10,"opaque":7,"extFields":{"a":-}}',
        b'{"code":10,"opaque":7,"extFields":{"a":1234567890123456789}}',
        b'{"code":10,"opaque":7,"extFields":{"a":truee}}',
        b'{"code":10,"opaque":7,"extFields":{"a":[1]}}',
        b'{"code":10,"opaque":7,"extFields":{"$ref":"$","a":1}}',
        b'{"code":10,"opaque":7,"extFields":{"a":"1","a":"2"}}',
        b'{"code":10,"opaque":7,"extFields":{"a":"\\u00e9"}}',
        b'{"code":10,"opaque":7,"extFields":{"a":"\\uzz01"}}',
        b'{"code":10,"opaque":7,"extFields":{"a":"\xff"}}',
        b'{"code":10,"opaque":7,"extFields":{"a":"\xed\xa0\x80"}}',
        b'{"code":10,"opaque":7,"extFields":null}',
        b'{"code":10,"opaque":7,"language":"KLINGON"}',
        b'{"code":10,"opaque":7,"remark":null}',
        b'{"code":10,"opaque":7,"remark":"\xff"}',
        b'{"opaque":7}',
        b"[]",
        b"",
    ],
)
def test_odd_headers_are_declined(header):
    assert scan(header, 0) is None


def test_recorded_frames_are_read_alike(golden):
    declined = []
    for path in sorted((golden / "frames").glob("*-p*.jsonl")):
        for row in read_rows(path):
            if row["kind"] == "response" or not isinstance(row["header"], dict):
                continue
            header, kind = header_of(base64.b64decode(row["raw"]))
            assert_same(header, kind)
            if row["header"]["code"] in (10, 11, 310) and scan(header, kind) is None:
                declined.append((path.name, row["header"]))
    assert not declined
