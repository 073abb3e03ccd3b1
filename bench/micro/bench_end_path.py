"""64 commits of transactions through the reactor, sockets included."""

import pytest

from bench.micro.bench_send_path import ADDED, log
from bench.micro.bench_send_table import FACTS, new_table
from bench.micro.reactor_calls import measure_frames
from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.diversion import HalfSends
from rmq._fastpath.handlers.end_path import EndPath
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

__all__ = ["log"]

WINDOW = 64
TEXT = (
    "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02TRAN_MSG\x01true\x02PGROUP\x01PG\x02"
    "REAL_TOPIC\x01TopicTest\x02REAL_QID\x012\x02"
)


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_commits(benchmark, log, kind):
    halves, queue = QueueTail("RMQ_SYS_TRANS_HALF_TOPIC", 0), QueueTail("TopicTest", 2)
    places = [
        log.append(halves, True, 0, 0, 1, bytes(8), 1, 0, 0, bytes(128), TEXT, None)
        for _ in range(WINDOW)
    ]
    end = log.file.write_position
    half = HalfSends(may_open=lambda: True, on_open=print)
    half.register(halves)
    path = EndPath(
        LogReader([log.file]), None, half, declined=("DELAY",),
        on_begin=lambda _: True, on_end=lambda *_: None, version=513,
    )  # fmt: skip
    path.table = new_table(
        log, facts=FACTS, added=ADDED, keys=UniqueKeys(bytes(8), lambda: 1)
    )
    path.register(queue)
    frames = b"".join(
        encode(
            Command(
                37,
                {
                    "producerGroup": "PG",
                    "tranStateTableOffset": str(offset),
                    "commitLogOffset": str(place),
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "false",
                },
                serialize_type=int(kind == "binary"),
            )
        )
        for offset, place, _ in places
    )

    def reset():
        log.file.write_position = end
        queue.truncate_to(0, -1)

    measure_frames(benchmark, 37, path, frames, reset)
