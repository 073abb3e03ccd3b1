"""Reading from an extent."""

from rmq._fastpath.log.tail_ring import TailRing


def bench_read_of_a_record(benchmark, tmp_path):
    ring = TailRing(str(tmp_path / "ring"), 1, size=1 << 20)
    ring.add(b"x" * 4_096)
    extent = ring.read_leftover(0, 4_096)
    benchmark(extent.read, 0, 330)
