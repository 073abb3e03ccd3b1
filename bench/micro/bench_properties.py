"""The properties of an ordinary message, as a producer sends them."""

from rmq._fastpath.bytes.properties import decode_properties, encode_properties

TEXT = (
    "KEYS\x01OrderID188\x02UNIQ_KEY\x017F00000163D218B4AAC2800AF65C0000\x02"
    "WAIT\x01true\x02TAGS\x01TagA\x02"
)


def bench_four_properties(benchmark):
    assert len(benchmark(decode_properties, TEXT)) == 4


def bench_four_written(benchmark):
    assert benchmark(encode_properties, decode_properties(TEXT)) == TEXT
