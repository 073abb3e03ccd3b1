"""POPs whose filter accepts one message of 500: what the search costs."""

from bench.micro.bench_pop_path import serve

RARE = 2_598_921
"""The code of TagC."""


def bench_search(benchmark, tmp_path):
    sent, served = serve(benchmark, tmp_path, {"maxMsgNums": "2"}, (RARE,), pops=1)
    assert sent < served * 3 * 512
