"""Rows with keys and tags as items of client batches; and the same by the model."""

from rmq._fastpath.arrow.items import ItemWriter
from tests.fastpath.arrow.test_items import Memory
from tests.model.items import model_item

ROWS = 10_000
TASK = b"0123456789ABCDEF0123"
FRAME_BYTES = 256 << 10


def columns():
    bodies = [b'{"order":%d,"sku":"%b"}' % (i, b"%x" % (i * 7919)) for i in range(ROWS)]
    keys = [b"k%d" % i for i in range(ROWS)]
    tags = [b"Tag%d" % (i % 5) for i in range(ROWS)]
    return bodies, keys, tags


def bench_items(benchmark):
    memory = Memory()
    body, *texts = [memory.text(values) for values in columns()]
    writer = ItemWriter([b"KEYS", b"TAGS"], task=TASK)

    def run():
        writer.measure(ROWS, body=body, texts=texts)
        at = 0
        while at < ROWS:
            _, at = writer.write(0, at, ROWS, FRAME_BYTES)

    benchmark(run)


def bench_items_by_the_model(benchmark):
    rows = [
        {"body": body, "keys": key, "tags": tag}
        for body, key, tag in zip(*columns(), strict=True)
    ]

    def run():
        b"".join(
            model_item(row, i, TASK.decode(), {}, 4 << 20) for i, row in enumerate(rows)
        )

    benchmark(run)
