"""Packing of messages to send, compiled and by the way of all others."""

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.client.packing import PackedMessage, join, pack_plain
from rmq.client.message import Message, properties_of
from rmq.outgoing.connection import date_ms

MESSAGE = Message("Bench", bytes(128))


def keys() -> UniqueKeys:
    return UniqueKeys(bytes(8), date_ms)


def bench_plain(benchmark):
    benchmark(pack_plain, keys(), MESSAGE, 4_096)


def bench_in_python(benchmark):
    made = keys()

    def pack() -> PackedMessage:
        msg_id = made.next()
        text = properties_of(MESSAGE, msg_id)
        return PackedMessage(MESSAGE.topic, msg_id, text, MESSAGE.body, 0, True)

    benchmark(pack)


def bench_a_batch(benchmark):
    made = keys()
    batch = [pack_plain(made, MESSAGE, 4_096) for _ in range(256)]
    benchmark(join, batch, b"WAIT\x01true\x02")
