"""The header scanner, on the header of an ordinary send."""

import struct

from rmq._fastpath.reactor.header_scan import scan
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

FIELDS = {
    "a": "producers",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "2",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01Order188\x02UNIQ_KEY\x017F00000163D218B4\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
}


def header(kind: SerializeType) -> bytes:
    command = Command.request(310)
    command.ext_fields = dict(FIELDS)
    command.serialize_type = kind
    frame = encode(command)
    return frame[8 : 8 + (struct.unpack_from(">I", frame, 4)[0] & 0xFFFFFF)]


def test_json(benchmark):
    assert benchmark(scan, header(SerializeType.JSON), 0).code == 310


def test_binary(benchmark):
    assert benchmark(scan, header(SerializeType.ROCKETMQ), 1).code == 310
