"""Header blocks as SDKs write them: indices, and literals of C core."""

from rmq._fastpath.http2.hpack import HeaderDecoder
from tests.fastpath.http2.caller import block, request_headers
from tests.model.hpack import encode_text

NAMES = [
    (b"x-mq-client-id", b"host@1@0@abcdefgh"),
    (b"x-mq-language", b"PYTHON"),
    (b"x-mq-request-id", b"01234567-89ab-cdef-0123-456789abcdef"),
    (b"x-mq-date-time", b"20261127T104912Z"),
    (b"authorization", b"MQv2-HMAC-SHA1 Credential=a, SignedHeaders=x-mq-date-time"),
]


def entries(pairs):
    return b"".join(b"\x40" + encode_text(k) + encode_text(v) for k, v in pairs)


def bench_indices(benchmark):
    decoder = HeaderDecoder()
    decoder.decode(entries([*request_headers(), *NAMES]))
    indices = bytes(range(0xBE, 0xBE + 11))
    assert len(benchmark(decoder.decode, indices)) == 11


def bench_literals(benchmark):
    decoder = HeaderDecoder()
    assert len(benchmark(decoder.decode, block(NAMES))) == 5


def bench_new_entries(benchmark):
    decoder = HeaderDecoder()
    assert len(benchmark(decoder.decode, entries(NAMES))) == 5
