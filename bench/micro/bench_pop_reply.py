"""POPs of four messages: what a reply costs besides the copy of its messages."""

from bench.micro.bench_pop_path import serve


def bench_16_replies(benchmark, tmp_path):
    sent, served = serve(benchmark, tmp_path, {"maxMsgNums": "4"})
    assert sent > served * 4 * 128
