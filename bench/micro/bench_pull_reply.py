"""Pulls of one message: what a reply costs beside the copy of its messages."""

import pytest

from bench.micro.bench_pull_path import FIELDS, serve
from rmq.protocol.command import Command

PULLS = 64


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_replies(benchmark, tmp_path, kind):
    fields = {**FIELDS, "maxMsgNums": "1"}
    kinds = {"serialize_type": int(kind == "binary")}
    frames = [Command(11, fields, **kinds) for _ in range(PULLS)]
    sent, served = serve(benchmark, tmp_path, frames, 128, None)
    assert sent > served * 128
