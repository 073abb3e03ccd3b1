"""The background work of a store, and when it runs."""

import trio

from rmq.store.index_worker import INDEX_INTERVAL_S
from rmq.store.service import (
    CLAIM_INTERVAL_S,
    DISK_CHECK_INTERVAL_S,
    StoreService,
)
from tests.store.conftest import Watch


async def test_disk_is_looked_at_from_the_start(open_store, run_for, autojump_clock):
    watch = await run_for(open_store(), 20.5)
    assert watch.times("update_refusal") == [0, 10, 20]


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


async def test_blocks_are_allocated_before_the_pause(
    open_store, make_message, run_for, autojump_clock
):
    """The writer used 32 MiB during a pause of 50 ms. Python allocated the next blocks
    then, for one batch after the other.
    """
    store = open_store()
    store.writes.put(make_message(b"x" * 50_000))
    watch = await run_for(store, 0.2)
    assert watch.times("allocate_ahead") == [0]


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
    assert not store.index.lag_bytes
    assert set(naps) == {DISK_CHECK_INTERVAL_S}


async def test_a_few_new_bytes_wake_the_loops_once(
    open_store, make_message, run_for, autojump_clock, monkeypatch
):
    """They wait for more, or for the thorough flush; only the claim looks for it."""
    naps = []
    sleep = trio.sleep

    async def counted(seconds):
        naps.append((round(trio.current_time(), 3), seconds))
        await sleep(seconds)

    monkeypatch.setattr(trio, "sleep", counted)
    store = open_store()
    store.writes.put(make_message(properties_text="KEYS\x01k\x02"))
    watch = await run_for(store, 11)
    assert watch.times("flush") == [10.0]
    assert [at for at, nap in naps if nap == 0.5] == [9.5]
    assert [nap for at, nap in naps if 1.5 < at < 9] == [CLAIM_INTERVAL_S] * 7
    assert INDEX_INTERVAL_S not in {nap for _, nap in naps}


async def test_a_quiet_log_near_the_end_of_its_file_is_looked_at_once(
    open_store, make_message, run_for, autojump_clock, monkeypatch
):
    store = open_store()
    calls = []
    allocate = store.log.allocate_ahead
    monkeypatch.setattr(
        store.log, "allocate_ahead", lambda: (calls.append(1), allocate())
    )
    store.writes.put(make_message(b"x" * 50_000))
    await run_for(store, 20.5)
    assert len(calls) == 1
    assert not store.log.wants_look_ahead


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
        async with service.pause():
            before = list(watch.calls)
            store.writes.put(make_message())
            store.writes.end_batch()
            await trio.sleep(60)
            assert watch.calls == before
        await trio.sleep(20)
        assert {call[0] for call in watch.calls[len(before) :]} >= {
            "update_refusal",
            "flush",
        }
    nursery.cancel_scope.cancel()


async def test_a_pause_follows_another_at_once(
    open_store, works_in_loop, autojump_clock, nursery
):
    """The loops have not begun again when the second pause begins."""
    service = StoreService(open_store())
    await nursery.start(service.run)
    with trio.fail_after(60):
        for _ in range(3):
            async with service.pause():
                pass
    nursery.cancel_scope.cancel()


async def test_a_pause_while_the_service_ends(
    open_store, works_in_loop, autojump_clock, nursery
):
    """What cuts a log is shielded: it waited for loops that nobody ran any more."""
    service = StoreService(open_store())
    async with trio.open_nursery() as running:
        await running.start(service.run)
        running.cancel_scope.cancel()
    with trio.fail_after(60):
        async with service.pause():
            pass


async def test_loops_do_not_begin_during_a_pause(
    open_store, make_message, monkeypatch, works_in_loop, autojump_clock, nursery
):
    store = open_store()
    service = StoreService(store)
    watch = Watch(store, monkeypatch)
    async with service.pause():
        nursery.start_soon(service.run)
        store.writes.put(make_message())
        store.writes.end_batch()
        await trio.sleep(60)
        assert not watch.calls
    await trio.sleep(20)
    assert watch.calls
    nursery.cancel_scope.cancel()


async def test_no_block_heals_during_a_pause(
    open_store, works_in_loop, autojump_clock, nursery
):
    """The bytes of another broker came into a log that was being truncated."""
    service, running = StoreService(open_store()), []

    async def heal_blocks():
        running.append(True)
        try:
            await trio.sleep_forever()
        finally:
            running.pop()

    service.heal_blocks = heal_blocks
    await nursery.start(service.run)
    await trio.sleep(1)
    assert running
    async with service.pause():
        assert not running
    await trio.sleep(1)
    assert running
    nursery.cancel_scope.cancel()


async def test_a_pause_that_was_given_up_lets_the_loops_go_on(
    open_store, works_in_loop, autojump_clock, nursery
):
    service = StoreService(open_store())
    await nursery.start(service.run)
    with trio.CancelScope() as scope:
        scope.cancel()
        async with service.pause():
            raise AssertionError("nobody waited")
    with trio.fail_after(60):
        async with service.pause():
            pass
    nursery.cancel_scope.cancel()
