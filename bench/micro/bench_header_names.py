"""Names of headers by number: known ones, and ones that are checked."""

import pytest

from rmq._fastpath.http2.hpack import HeaderDecoder
from tests.fastpath.http2.caller import block


@pytest.mark.parametrize("name", [b"x-mq-client-id", b"x-not-known-at-all"])
def bench_names(benchmark, name):
    decoder = HeaderDecoder()
    assert len(benchmark(decoder.decode, block([(name, b"")] * 8))) == 8
