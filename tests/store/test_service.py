"""The background work of a store, and when it runs."""

import trio

from rmq.store.service import DISK_CHECK_INTERVAL_S


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
