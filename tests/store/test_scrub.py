"""The scrub finds damage that no reader has touched, and repairs what it can."""

import shutil

import pytest
import trio

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.store import scrub as module
from rmq.store.scrub import DAY_S, Part, pause_s
from rmq.store.scrub_worker import scrub_periodically
from tests.store.test_log_digests import (
    FILE_SIZE,
    fill,
    flip,
    numbers_of,
    opened,
    path_of,
    place_of,
    sealed_of,
    store,
)

__all__ = ["opened", "store"]

RIGHT = [4, 4, 2]


def scrub_all(store):
    """Run parts until a round is complete; return the offsets of bad blocks."""
    found, parts = [], 0
    done = {file.base_offset: 0 for file in store.log.files.files}
    before = {base: store.digests.scrubbed_ms(base) for base in done}
    store.clock.ms += 1_000
    while any(store.digests.scrubbed_ms(base) == before[base] for base in done):
        found += store.scrub.next_part().bad
        parts += 1
        assert parts < 100
    return found


def damage(store, number, at):
    offset = place_of(store, number)[0] + at
    position = offset % FILE_SIZE
    flip(path_of(store, offset), position)
    return offset - position % BLOCK_BYTES


def test_damage_in_a_block_without_readers_is_found(store):
    assert sealed_of(store) == RIGHT
    assert scrub_all(store) == []
    assert store.scrub.read_bytes == sum(RIGHT) * BLOCK_BYTES
    blocks = [damage(store, number, 45) for number in (10, 200, 500)]
    assert scrub_all(store) == blocks


def test_what_memory_still_has_is_written_again(store, monkeypatch, caplog):
    """The disk has lost a write; the page cache has the bytes."""
    own = module.read_disk

    def read_disk(path, position, size):
        data = bytearray(own(path, position, size))
        if path.endswith(f"{FILE_SIZE:020d}"):
            data[BLOCK_BYTES + 7] ^= 1
        return bytes(data)

    monkeypatch.setattr(module, "read_disk", read_disk)
    assert scrub_all(store) == []
    begin = FILE_SIZE + BLOCK_BYTES
    text = f"the bytes {begin} to {begin + BLOCK_BYTES} on the disk differed"
    assert caplog.text.count(text) == 1


def test_the_time_of_a_scrub_outlasts_a_stop(store, opened):
    scrub_all(store)
    times = [store.digests.scrubbed_ms(number * FILE_SIZE) for number in range(2)]
    assert times == [store.clock.now_ms()] * 2
    store.close()
    again = opened()
    again.digests.update()
    assert [again.digests.scrubbed_ms(at * FILE_SIZE) for at in range(2)] == times
    again.scrub.next_part()
    assert again.scrub.oldest_ms == times[0]


def test_a_store_without_digests_gets_them(store, opened, make_message):
    """Its records prove its blocks, the newest file first; then damage is found."""
    store.close()
    shutil.rmtree(store.directory.root / "digest")
    again = opened()
    fill(again, make_message, 100)
    assert sum(sealed_of(again)) == 0
    parts = []
    while (part := again.scrub.next_part()).is_urgent:
        parts.append(sealed_of(again))
    again.digests.update()
    assert parts[0][:2] == [0, 0]
    assert parts[0][2] > 0
    assert sealed_of(again)[:2] == [4, 4]
    assert part.bad == []
    block = damage(again, 200, 45)
    assert scrub_all(again) == [block]


def test_a_damaged_record_in_a_store_without_digests_is_named(store, opened):
    store.close()
    shutil.rmtree(store.directory.root / "digest")
    again = opened()
    place = place_of(again, 200)[0]
    damage(again, 200, 500)
    again.digests.update()
    while again.scrub.next_part().is_urgent:
        pass
    base = place - place % FILE_SIZE
    assert again.digests.damaged_records == {
        base: f"the record at {place} is damaged (bad crc)"
    }
    assert sealed_of(again)[base // FILE_SIZE] == place % FILE_SIZE // BLOCK_BYTES


@pytest.mark.parametrize(
    ("part", "total", "expected"),
    [
        (Part(1 << 20, []), 1 << 30, 7 * DAY_S / 1024),
        (Part(1 << 20, []), 1 << 50, 1 / 16),
        (Part(1 << 20, [], is_urgent=True), 1 << 30, 1 / 16),
        (Part(1 << 20, []), 1 << 21, 3_600.0),
    ],
)
def test_all_is_read_within_the_days_and_at_most_at_the_rate(part, total, expected):
    assert pause_s(part, total, 7, 16 << 20) == pytest.approx(expected)


async def test_the_loop_reports_what_it_finds(store, autojump_clock, nursery):
    async def wait_for_messages():
        await trio.sleep_forever()

    block, found = damage(store, 200, 45), trio.Event()
    store.digests.on_bad = found.set
    nursery.start_soon(scrub_periodically, store, wait_for_messages)
    await found.wait()
    assert list(store.digests.bad) == [block]
    assert numbers_of(store)


async def test_it_does_nothing_without_days(opened, autojump_clock):
    with trio.fail_after(1):
        await scrub_periodically(opened(scrub_days=0), trio.sleep_forever)
