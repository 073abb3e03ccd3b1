"""The order of the positions in one log."""

import pytest

from rmq._fastpath.log.watermark import Watermark
from rmq.store.config import FlushDiskType

SYNC = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}


def appended(store, make_message, count=3):
    for _ in range(count):
        store.writes.put(make_message())
    return store.log.end_offset


@pytest.mark.usefixtures("without_ring")
def test_without_a_group_readers_see_all_and_only_a_flush_is_durable(
    open_store, make_message
):
    store = open_store()
    end = appended(store, make_message)
    positions = store.positions
    assert (positions.appended, positions.written, positions.visible) == (end,) * 3
    assert (positions.durable.value, positions.dirty_size) == (0, end)
    assert positions.safe_offset == end
    store.durability.flush()
    assert positions.durable.value == positions.stable.value == end
    assert not list(positions.broken_invariants())


def test_under_sync_flush_readers_and_reports_wait_for_the_disk(
    open_store, make_message
):
    store = open_store(**SYNC)
    end = appended(store, make_message)
    positions = store.positions
    assert positions.visible == positions.safe_offset == 0
    store.durability.flush()
    assert positions.visible == positions.safe_offset == end


@pytest.mark.parametrize("settings", [{}, SYNC])
def test_a_group_holds_acknowledged_and_stable(open_store, make_message, settings):
    store = open_store(**settings)
    positions = store.positions
    replicated = store.durability.await_group(1_000)
    positions.limit_visible(positions.acknowledged)
    end = appended(store, make_message)
    store.durability.flush()
    assert positions.acknowledged.value == positions.stable.value == 0
    replicated.advance(end)
    assert positions.acknowledged.value == positions.stable.value == end
    assert positions.visible == end
    assert not list(positions.broken_invariants())


@pytest.mark.usefixtures("without_ring")
def test_a_broken_order_has_a_sentence(open_store, make_message):
    store = open_store()
    end = appended(store, make_message)
    limit = Watermark(end + 2)
    store.positions.limit_visible(limit)
    store.positions.durable.reset(end + 1)
    broken = list(store.positions.broken_invariants())
    limit.reset(end)
    store.positions.durable.reset(end)
    assert broken == [
        f"durable is {end + 1}, beyond written, which is {end}",
        f"acknowledged is {end + 1}, beyond appended, which is {end}",
        f"visible is {end + 2}, beyond appended, which is {end}",
    ]
