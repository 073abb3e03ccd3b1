"""64 sends with a delay level, and 64 half messages, sockets included.

`bench_send_path.py` has the same without, `bench_timed_sends.py` with a time.
"""

from collections import Counter

import pytest

from bench.micro.bench_timed_sends import FIELDS, serve
from rmq._fastpath.handlers.diversion import DelayedSends, HalfSends
from rmq._fastpath.log.queue_tail import QueueTail

DELAY = "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02DELAY\x0118\x02"
HALF = "KEYS\x01k\x02UNIQ_KEY\x017F0163D218B4\x02TRAN_MSG\x01true\x02"


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_delayed_sends(benchmark, tmp_path, kind):
    queue = QueueTail("SCHEDULE_TOPIC_XXXX", 17)
    delayed = DelayedSends((7_200_000,) * 18, set())
    delayed.register(18, queue)
    fields = {**FIELDS, "i": DELAY}
    serve(benchmark, tmp_path, queue, {"DELAY": delayed}, fields, kind)


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_half_messages(benchmark, tmp_path, kind):
    queue = QueueTail("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    opened = Counter()

    def count(topic):
        opened[topic] += 1

    half = HalfSends(may_open=lambda: True, on_open=count)
    half.register(queue)
    fields = {**FIELDS, "i": HALF, "f": "4"}
    serve(benchmark, tmp_path, queue, {"TRAN_MSG": half}, fields, kind)
    assert opened
