"""What a claim adds to each poll that appends."""

import itertools

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.watermark import Watermark


def bench_store(benchmark):
    claim = Claim(bytearray(4096), bytes(16))
    claim.begin(0, 0, Watermark())
    claim.confirm_by(Watermark())
    ends = itertools.count(1, 1000)
    benchmark(lambda: claim.update(next(ends)))
