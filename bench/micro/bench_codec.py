"""A send written, and its answer paired; and what the same takes through `Peer`."""

import pytest

from rmq._fastpath.client.codec import ClientCodec, SendTemplate
from rmq.outgoing.signing import send_command
from rmq.protocol.codes import SerializeType
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode
from rmq.protocol.peer import Peer, Role

TEMPLATE = SendTemplate("group", "Orders", 3, None)
PROPERTIES = b"UNIQ_KEY\x017F000001791808 7DE3267093F6040000\x02"
FIELDS = {"msgId": "7F" * 16, "queueId": "3", "queueOffset": "41"}


def answer(number: int) -> bytes:
    command = Command(0, FIELDS, flag=1, opaque=number)
    command.serialize_type = SerializeType.ROCKETMQ
    return encode(command)


@pytest.fixture
def codec():
    return ClientCodec(decode, encode)


def bench_send(benchmark, codec):
    body, reply = bytes(128), bytearray(answer(0))

    def run():
        number = codec.send(TEMPLATE, PROPERTIES, body, 1, 9, "ID", born_ms=5)
        codec.take_output()
        reply[13:17] = number.to_bytes(4, "big")
        codec.feed(bytes(reply))

    benchmark(run)


def bench_send_through_peer(benchmark):
    peer, body = Peer(Role.CLIENT, lambda: 0), bytes(128)

    def run():
        command = send_command(TEMPLATE, PROPERTIES, body, 5, 0)
        peer.request(command, 9)
        peer.receive(answer(command.opaque))

    benchmark(run)
