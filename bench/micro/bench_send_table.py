"""A topic that changes: forgotten and shown again, with its queues."""

from rmq._fastpath.bytes.unique_keys import UniqueKeys
from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

FACTS = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


def new_table(log, **options):
    """Return a table without facts and special properties, except `options`."""
    values = {
        "now_ms": lambda: 1,
        "on_failure": print,
        "store_host": bytes(8),
        "facts": {},
        "added": b"",
        "keys": UniqueKeys(bytes(8), lambda: 1),
        "declined_properties": (),
        "diversions": {},
        "declined_text": b"",
        "waits_for_disk": False,
        "max_body_size": 1 << 22,
        "version": 513,
    }
    return SendTable(log, **(values | options))


def bench_forget_and_learn_among_1000(benchmark):
    table = new_table(LogTail(RecordEncoder(bytes(8))), facts=FACTS)
    queues = [QueueTail(f"topic-{n}", 0) for n in range(1_000)]
    for queue in queues:
        table.register(queue.topic, 0, 1, queue)

    def run():
        table.unregister("topic-7")
        table.register("topic-7", 0, 1, queues[7])

    benchmark(run)
