"""HMAC-SHA1 with the instructions of the CPU and without."""

import pytest

from rmq._fastpath.reactor.signatures import hmac_sha1


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("size", [300, 1200])
def bench_hmac_sha1(benchmark, size, plain):
    benchmark(hmac_sha1, b"secret", b"x" * size, plain=plain)
