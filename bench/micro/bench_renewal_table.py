"""32 messages of a push consumer in the table of renewals, and out of it."""

from rmq._fastpath.http2.renewal_table import RenewalTable

HANDLES = [
    f"7 1795230112000 60000 3 0 broker-a 0 {number} {number << 10}"
    for number in range(32)
]


def bench_renewals(benchmark):
    table = RenewalTable(lambda: 0, limit=100_000, client_limit=4_096)

    def add_and_remove():
        table.add("me", None, HANDLES)
        for handle in HANDLES:
            table.remove(handle)

    benchmark(add_and_remove)
    assert len(table) == 0
