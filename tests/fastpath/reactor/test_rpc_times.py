"""RpcTimes: how long answers took."""

from rmq._fastpath.reactor.rpc_times import RPC_BOUNDS_MS, RpcTimes

MS = 1_000_000


def test_a_time_is_sorted_by_javas_bounds():
    times = RpcTimes()
    for ms in (0, 1, 2, 7, 100, 101, 3_001):
        times.observe(10, 0, ms * MS)
    (row,) = times.rows()
    assert (row.code, row.response) == (10, 0)
    assert RPC_BOUNDS_MS == (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
    assert row.counts == (2, 1, 0, 1, 0, 1, 1, 0, 0, 1)
    assert row.sum_ms == 3_212


def test_answers_of_one_batch_are_counted_together():
    times = RpcTimes()
    times.observe(10, 0, 2 * MS, 64)
    times.observe(10, 0, 2 * MS, 0)
    (row,) = times.rows()
    assert (row.counts[1], row.sum_ms) == (64, 128)


def test_each_code_and_answer_has_its_row():
    times = RpcTimes()
    keys = {(code, answer) for code in (10, 310, 200_050) for answer in (0, 1)}
    for key in sorted(keys) * 2:
        times.observe(*key, MS)
    rows = times.rows()
    assert {(row.code, row.response) for row in rows} == keys
    assert all(sum(row.counts) == 2 for row in rows)


def test_a_full_table_leaves_out_what_is_new():
    times = RpcTimes()
    for code in range(2_000):
        times.observe(code, 0, MS)
    count = len(times.rows())
    assert 256 < count < 1_024
    times.observe(0, 0, MS)
    times.observe(5_000, 0, MS)
    rows = times.rows()
    assert len(rows) == count
    assert {row.code: sum(row.counts) for row in rows}[0] == 2
