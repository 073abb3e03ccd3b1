"""Pulls that read 2,000 queue entries for one message: what searching costs.

And pulls of entries in a file, which are compared with their records.
"""

import pytest

from bench.micro.bench_pull_path import FIELDS, MESSAGES, RARE, serve
from rmq.protocol.command import Command

PULLS = 8


def bench_8_searches(benchmark, tmp_path):
    fields = {**FIELDS, "maxMsgNums": str(MESSAGES)}
    frames = [Command(11, fields) for _ in range(PULLS)]
    sent, served = serve(benchmark, tmp_path, frames, 128, (RARE,))
    assert sent < served * 2 * 512


@pytest.mark.parametrize("size", [128, 1024])
def bench_8_pulls_from_a_queue_file(benchmark, tmp_path, size):
    frames = [Command(11, {**FIELDS, "queueOffset": str(32 * n)}) for n in range(PULLS)]
    sent, served = serve(benchmark, tmp_path, frames, size, None, is_flushed=True)
    assert sent > served * 32 * size
