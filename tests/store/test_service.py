"""The background work of a store, and when it runs."""

import trio

from rmq.store.service import DISK_CHECK_INTERVAL_S, StoreService
from tests.store.conftest import Watch


async def test_disk_is_looked_at_from_the_start(open_store, run_for, autojump_clock):
    watch = await run_for(open_store(), 20.5)
    assert watch.times("check") == [0, 10, 20]


async def test_next_file_is_prepared_while_the_last_fills(
    open_store, make_message, run_for, autojump_clock
):
    store = open_store()
    store.writes.put(make_message(b"x" * 50_000))
    names = []

    async def at():
        await trio.sleep(0.06)
        names.extend(sorted(p.name for p in store.directory.commit_log.iterdir()))

    await run_for(store, 0.2, at=at)
    assert [int(name) for name in names] == [0, 65536]
    store.close()
    assert len(list(store.directory.commit_log.iterdir())) == 1


async def test_an_idle_store_looks_at_the_disk_only(
    open_store, make_message, run_for, autojump_clock, monkeypatch
):
    """Flushes, index and look-ahead sleep until something is stored."""
    naps = []
    sleep = trio.sleep

    async def counted(seconds):
        if trio.current_time() > 60:
            naps.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr(trio, "sleep", counted)
    store = open_store()
    store.writes.put(make_message(properties_text="KEYS\x01k\x02"))
    await run_for(store, 160.5)
    assert not store.index.lag
    assert set(naps) == {DISK_CHECK_INTERVAL_S}


async def test_nothing_works_on_the_store_during_a_pause(
    open_store, make_message, monkeypatch, works_in_loop, autojump_clock, nursery
):
    store = open_store(disk_warning_ratio=100)
    service = StoreService(store)
    watch = Watch(store, monkeypatch)
    await nursery.start(service.run)
    for _ in range(2):
        store.writes.put(make_message())
        store.writes.end_batch()
        await trio.sleep(20)
        async with service.paused():
            before = list(watch.calls)
            store.writes.put(make_message())
            store.writes.end_batch()
            await trio.sleep(60)
            assert watch.calls == before
        await trio.sleep(20)
        assert {call[0] for call in watch.calls[len(before) :]} >= {"check", "flush"}
    nursery.cancel_scope.cancel()
