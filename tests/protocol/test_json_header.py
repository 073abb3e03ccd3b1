from contextlib import suppress

import pytest

from rmq.core.errors import RemoteProtocolError
from rmq.protocol.command import Command
from rmq.protocol.json_header import decode_json_header, encode_json_header


def read(text):
    return decode_json_header(text.encode(), b"")


def test_java_key_order_and_no_blanks():
    command = Command(0, {"a": "1"}, b"", "fine", 7, 1, "PYTHON", 513)
    assert encode_json_header(command) == (
        b'{"code":0,"extFields":{"a":"1"},"flag":1,"language":"PYTHON","opaque":7,'
        b'"remark":"fine","serializeTypeCurrentRPC":"JSON","version":513}'
    )


def test_nothing_to_say_is_left_out():
    assert encode_json_header(Command(0)) == (
        b'{"code":0,"flag":0,"opaque":0,"serializeTypeCurrentRPC":"JSON","version":0}'
    )


def test_text_beyond_ascii_is_utf8():
    assert '"remark":"größer 語"'.encode() in encode_json_header(
        Command(1, remark="größer 語")
    )


def test_defaults_of_what_is_missing():
    assert read('{"code":34}') == Command(34)
    assert read("{}") == Command(0)


def test_any_order_and_unknown_keys():
    command = read('{"opaque":5,"more":[1,{"x":null}],"code":11,"version":1}')
    assert (command.code, command.opaque, command.version) == (11, 5, 1)


def test_the_body_is_not_part_of_the_header():
    assert read('{"code":1,"body":"QUJD","serialize_type":1}') == Command(1)
    assert read('{"code":1,"body":{},"serialize_type":"x"}') == Command(1)


def test_language_as_name_or_number():
    assert read('{"code":1,"language":3}').language == 3
    assert read('{"code":1,"language":"RUST"}').language == "RUST"


def test_values_that_are_not_text_as_cpp_clients_send():
    command = read(
        '{"code":10,"extFields":{"a":4,"b":true,"c":null,"d":1.5,"e":"x"}}\n'
    )
    assert command.ext_fields == {"a": "4", "b": "true", "d": "1.5", "e": "x"}


def test_nulls_count_as_absent():
    command = read('{"code":10,"extFields":null,"flag":null,"remark":null}')
    assert command == Command(10)


def test_numbers_as_text():
    assert read('{"code":"10","opaque":"7"}') == Command(10, opaque=7)


def test_fastjson_dialect():
    command = read("{code:10,'extFields':{topic:'T',queueId:0,},opaque:3,}")
    assert command == Command(10, {"topic": "T", "queueId": "0"}, opaque=3)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "null", "12", '"x"', "{", '{"code":}', '{"code":"x"}', '{"code":[]}',
     '{"code":2147483648}', '{"code":1,"flag":1e40}', '{"code":1,"version":{}}',
     '{"code":1,"language":[]}', '{"code":1,"remark":"\\ud800"}'],
)  # fmt: skip
def test_what_is_no_header(text):
    with pytest.raises(RemoteProtocolError):
        read(text)


@pytest.mark.parametrize("depth", [100, 900, 5000])
def test_nesting_is_limited(depth):
    with suppress(RemoteProtocolError):
        assert read('{"code":1,"x":' + "[" * depth + "]" * depth + "}") == Command(1)


def test_bytes_that_are_no_text():
    with pytest.raises(RemoteProtocolError):
        decode_json_header(b'{"code":1,"remark":"\xff"}', b"")
