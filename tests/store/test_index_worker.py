"""The index follows the log."""

import pytest
import trio

from rmq.store import index, index_worker, worker
from rmq.store.service import StoreService
from tests.store.steps import result_of
from tests.waiting import until


@pytest.mark.parametrize("max_lag", [1 << 20, 1])
async def test_the_index_follows_the_log(
    open_store, make_message, nursery, monkeypatch, max_lag
):
    monkeypatch.setattr(index_worker, "QUIET_INTERVAL_S", 0.1)
    store = open_store()
    object.__setattr__(store.config, "index_max_lag", max_lag)
    await nursery.start(StoreService(store).run)
    for number in range(10):
        store.writes.put(make_message(properties_text=f"KEYS\x01k{number}\x02"))
    store.writes.end_batch()
    assert store.index.lag_bytes
    with trio.fail_after(10):
        await until(lambda: not store.index.lag_bytes)
    assert store.index.files[-1].entry_count == 11
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("seconds", "rest"), [(10.0, 0), (0.0, 1)])
def test_the_serving_thread_indexes_for_a_limited_time(
    open_store, make_message, monkeypatch, seconds, rest
):
    """It indexed 8 MiB in one step, and all clients waited."""
    monkeypatch.setattr(index, "CATCH_UP_S", seconds)
    store = open_store()
    for number in range(10):
        store.writes.put(make_message(properties_text=f"KEYS\x01k{number}\x02"))
    store.writes.end_batch()
    store.index.catch_up()
    assert bool(store.index.lag_bytes) is bool(rest)


@pytest.mark.parametrize(
    ("body", "most", "least"), [(b"x", 2, 2), (b"x" * 32_000, 13, 9)]
)
async def test_it_follows_by_time_and_bytes_not_by_message(
    open_store, make_message, run_for, autojump_clock, monkeypatch, body, most, least
):
    """20 messages a second take a step in 2 s, more if there is more to read."""
    store = open_store()
    steps = []
    build = store.index.build

    def counted():
        steps.append(trio.current_time())
        build()

    monkeypatch.setattr(store.index, "build", counted)

    async def put_regularly():
        for number in range(100):
            keys = f"KEYS\x01k{number}\x02"
            store.writes.put(make_message(body, properties_text=keys))
            store.writes.end_batch()
            await trio.sleep(0.05)
        assert len(result_of(store.reads.query("Topic", "k99", 1, 0, 2**62))) == 1

    await run_for(store, 5.01, at=put_regularly)
    assert least <= len(steps) <= most


async def test_an_index_that_cannot_be_written_is_tried_again(
    open_store, make_message, nursery, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(index_worker, "QUIET_INTERVAL_S", 0.1)
    monkeypatch.setattr(worker, "RETRY_S", 0.01)
    store = open_store()
    in_the_way = tmp_path / "store" / "index"
    in_the_way.write_text("")
    store.writes.put(make_message(properties_text="KEYS\x01k\x02"))
    await nursery.start(StoreService(store).run)
    with trio.fail_after(10):
        await until(lambda: "index" in caplog.text)
        assert result_of(store.reads.query("Topic", "k", 1, 0, 2**62)) == [0]
        in_the_way.unlink()
        await until(lambda: not store.index.lag_bytes)
    nursery.cancel_scope.cancel()
