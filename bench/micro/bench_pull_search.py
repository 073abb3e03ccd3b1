"""Pulls that read 2,000 queue entries for one message: what searching costs."""

from bench.micro.bench_pull_path import FIELDS, MESSAGES, RARE, serve
from rmq.protocol.command import Command

PULLS = 8


def bench_8_searches(benchmark, tmp_path):
    fields = {**FIELDS, "maxMsgNums": str(MESSAGES)}
    frames = [Command(11, fields) for _ in range(PULLS)]
    sent, served = serve(benchmark, tmp_path, frames, 128, (RARE,))
    assert sent < served * 2 * 512
