"""64 commits through the reactor and the compiled handler, sockets included."""

import pytest

from bench.micro.reactor_calls import measure_frames
from rmq._fastpath.handlers.commit_path import CommitPath
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64
FIELDS = {"consumerGroup": "please_rename_unique_group_name", "topic": "TopicTest"}


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_commits(benchmark, kind):
    told = []
    table = CommitTable(told.append)
    for queue_id in range(8):
        table.register(FIELDS["consumerGroup"], FIELDS["topic"], queue_id)
    frames = b"".join(
        encode(
            Command(
                15,
                {**FIELDS, "queueId": str(n % 8), "commitOffset": str(1_000 + n)},
                serialize_type=int(kind == "binary"),
            )
        )
        for n in range(WINDOW)
    )
    measure_frames(benchmark, 15, CommitPath(table, 513), frames, told.clear)
    assert sum(map(len, told)) == WINDOW
