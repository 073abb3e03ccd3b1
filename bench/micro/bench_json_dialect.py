"""The dialect rewritten: a registration with static topics, whose names are numbers."""

from rmq._fastpath.bytes.json_dialect import plain_json

MAPPING = (
    b'{"bname":"broker-a","currIdMap":{0:0,1:1,2:2,3:3},"dirty":false,"topic":"T"},'
)


def bench_plain_json(benchmark):
    data = b"[" + MAPPING * 1_000 + b"]"
    text, _ = benchmark(plain_json, data, 64, 0)
    assert text.count(b'{"0":0') == 1_000
