"""Huffman codes: a header value of short codes, and one of long codes."""

import pytest

from rmq._fastpath.http2.huffman import decode_text
from tests.model.hpack import encode_huffman


@pytest.mark.parametrize("text", [b"application/grpc", b"1A2B3C4D" * 8, b"\xff~^" * 20])
def bench_decode_text(benchmark, text):
    coded = encode_huffman(text)
    assert benchmark(decode_text, coded) == text
