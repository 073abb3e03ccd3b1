"""Moving a watermark, with nobody and with one reader listening."""

import itertools

import pytest

from rmq._fastpath.log.watermark import Watermark


@pytest.mark.parametrize("subscribers", [0, 1])
def bench_advance(benchmark, subscribers):
    watermark = Watermark()
    for _ in range(subscribers):
        watermark.subscribe()
    values = itertools.count(1)
    benchmark(lambda: watermark.advance(next(values)))


def bench_read(benchmark):
    watermark = Watermark(1)
    benchmark(lambda: watermark.value)


def bench_demand_and_take(benchmark):
    watermark = Watermark()

    def turn():
        watermark.request_advance()
        watermark.wait_for_request()

    benchmark(turn)
