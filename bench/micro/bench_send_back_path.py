"""64 messages that a consumer gives back through the reactor, sockets included."""

import pytest

from bench.micro.bench_send_path import ADDED, log
from bench.micro.bench_send_table import FACTS, new_table
from bench.micro.reactor_calls import measure_frames
from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.diversion import DelayedSends
from rmq._fastpath.handlers.send_back_path import SendBackPath
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

__all__ = ["log"]

WINDOW = 64
TEXT = "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02WAIT\x01true\x02TAGS\x01A\x02"


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_backs(benchmark, log, kind):
    source, level = QueueTail("TopicTest", 2), QueueTail("SCHEDULE_TOPIC_XXXX", 2)
    places = [
        log.append(source, True, 0, 0, 1, bytes(8), 1, 0, 0, bytes(128), TEXT, None)
        for _ in range(WINDOW)
    ]
    end = log.file.write_position
    delayed = DelayedSends((1_000, 5_000, 10_000), set())
    delayed.register(3, level)
    path = SendBackPath(
        new_table(log, facts=FACTS, added=ADDED, keys=UniqueKeys(bytes(8), lambda: 1)),
        LogReader([log.file]), None, delayed, declined=("TIMER_DELAY_SEC",),
        choose_queue=lambda _: 0, on_stored=lambda _: None, version=513,
    )  # fmt: skip
    path.register_source(source)
    path.register_group("G", "%RETRY%G", queue_count=1, limit=16, dead_letters=None)
    frames = b"".join(
        encode(
            Command(
                36,
                {
                    "group": "G", "offset": str(place), "delayLevel": "3",
                    "originMsgId": f"{place:032X}", "originTopic": "TopicTest",
                    "unitMode": "false", "maxReconsumeTimes": "16",
                },
                serialize_type=int(kind == "binary"),
            )
        )
        for _, place, _ in places
    )  # fmt: skip

    def reset():
        log.file.write_position = end
        level.truncate_to(0, -1)

    measure_frames(benchmark, 36, path, frames, reset)
