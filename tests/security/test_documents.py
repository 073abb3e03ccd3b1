"""JSON that is deep, huge, double or compressed: answered quickly, or not at all."""

import json
import time
import zlib

import pytest

from rmq.core.errors import PeerClosed
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command

LIMIT_S = 0.5
"""What one frame may hold up everybody else, on a slow machine."""

MANY_FIELDS = b",".join([b'"%05d":""' % number for number in range(80_000)])

HEARTBEAT = RequestCode.HEART_BEAT
SIZE = 8 << 20


def frame(header: bytes, body: bytes = b"") -> bytes:
    sizes = (4 + len(header) + len(body)).to_bytes(4, "big")
    return sizes + len(header).to_bytes(4, "big") + header + body


@pytest.mark.parametrize(
    "body",
    [
        b"[" * SIZE,
        b'{"a":' * (SIZE // 5),
        b"[" + b"1," * (SIZE // 2) + b"x]",
        b"[" + b"1," * (SIZE // 2) + b"1]",
        b'{"clientID":"c","consumerDataSet":[' + b"{}," * (SIZE // 3) + b"{}]}",
        b"{a:1," + b"b:[]," * (SIZE // 5) + b"}",
        b'{"$ref":"$","x":[' + b'{"$ref":"$.x"},' * (SIZE // 15) + b"0]}",
        b'"' + b"\\u0041" * (SIZE // 6) + b'"',
        b"9" * SIZE,
        b"\xff" * SIZE,
    ],
    ids=[
        "deep array", "deep object", "bad end", "wrong type", "many groups",
        "dialect", "references", "escapes", "number", "no text",
    ],
)  # fmt: skip
async def test_a_body_that_is_expensive_to_read(scene, body):
    client = await scene.connect()
    began = time.process_time()
    answer = await client.call(Command(HEARTBEAT, body=body), 30)
    took_s = time.process_time() - began
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert len(answer.remark) < 4_096
    assert took_s < LIMIT_S
    await scene.assert_unhurt()


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":34,"opaque":9,' + b'"a":{' * 200_000,
        b'{"code":34,"opaque":9,x:[' + b"1," * 500_000 + b"]}",
        b'{"code":34,"opaque":9,"extFields":{' + b'"a":1,' * 150_000 + b'"b":2}}',
        b'{"opaque":9,"code":' + b"3" * 1_000_000 + b"}",
        b'{"code":34,"opaque":9,"extFields":{' + MANY_FIELDS + b"}}",
    ],
    ids=["deep", "dialect", "numbers", "long number", "many fields"],
)
async def test_a_header_that_is_expensive_to_read(scene, header):
    client = await scene.connect()
    began = time.process_time()
    await client.send_bytes(frame(header))
    try:
        answer = await client.call(Command(9_999), 30)
    except PeerClosed:
        pass
    else:
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert [each.code for each in client.pushed] == [1]
    assert time.process_time() - began < LIMIT_S / 5
    await scene.assert_unhurt()


async def test_the_last_of_two_values_counts_as_in_java(scene):
    client = await scene.connect()
    twice = b'{"code":34,"code":9999,"opaque":1,"opaque":7,"flag":0,"version":0}'
    await client.send_bytes(frame(twice))
    assert (
        await client.call(Command(9_998))
    ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    (answer,) = client.pushed
    assert (answer.opaque, answer.code) == (7, 3)
    fields = json.dumps({"topic": "A", "group": "G"})[:-1] + ',"topic":"B"}'
    text = f'{{"code":105,"opaque":8,"extFields":{fields}}}'
    names = await scene.connect(scene.node.name_servers[0])
    await names.send_bytes(frame(text.encode()))
    assert (
        await names.call(Command(9_998))
    ).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert "topic: B" in names.pushed[0].remark


def bomb(mebibytes: int) -> bytes:
    """Compress so many MiB of zeros for the price of one: full flushes repeat."""
    size = 1 << 20
    packer = zlib.compressobj(9)
    piece = packer.compress(bytes(size)) + packer.flush(zlib.Z_FULL_FLUSH)
    checksum = (mebibytes * size % 65_521 << 16 | 1).to_bytes(4, "big")
    return piece[:2] + piece[2:] * mebibytes + b"\x03\0" + checksum


def test_a_bomb_is_a_compressed_text():
    assert zlib.decompress(bomb(3)) == bytes(3 << 20)


TOPIC = b"\0\0\0\x09t 1 1 6 x"


@pytest.mark.parametrize(
    "body",
    [
        bomb(1_000),
        zlib.compress(b"\0\0\0\x0d" + b'{"counter":1}' + b"\x7f\xff\xff\xff"),
        zlib.compress(
            b"\0\0\0\x0d" + b'{"counter":1}' + (2_000_000).to_bytes(4, "big")
            + TOPIC * 2_000_000
        ),
        zlib.compress(b"\0\0\0\x0d" + b'{"counter":1}')[:-3],
    ],
    ids=["a gigabyte", "a count that lies", "two million topics", "cut short"],
)  # fmt: skip
async def test_a_registration_that_is_a_bomb(scene, body):
    names = await scene.connect(scene.node.name_servers[0])
    fields = {
        "brokerName": "b", "brokerAddr": "10.0.0.1:1", "clusterName": "C",
        "haServerAddr": "10.0.0.1:2", "brokerId": "0", "bodyCrc32": "0",
    }  # fmt: skip
    began = time.process_time()
    request = Command(RequestCode.REGISTER_BROKER, fields, body, version=400)
    answer = await names.call(request, 30)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "RegisterBrokerBody" in answer.remark
    assert time.process_time() - began < LIMIT_S
    assert scene.node.name_server.routes.group("b") is None
    await scene.assert_unhurt()
