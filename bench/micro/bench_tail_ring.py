"""An append of a batch to the ring, lap after lap."""

from rmq._fastpath.log.tail_ring import TailRing

SIZE = 64 << 20
BATCH = b"x" * 86_000


def bench_append_of_256_records(benchmark, tmp_path):
    ring = TailRing(str(tmp_path / "ring"), 1, size=SIZE)

    def append():
        ring.add(BATCH)
        ring.mark_written(ring.appended_offset)

    benchmark(append)
