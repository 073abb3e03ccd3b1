"""The scrub finds damage that no reader has touched, and repairs what it can."""

import errno
import os
import shutil

import pytest
import trio

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.store import scrub as module
from rmq.store.scrub import DAY_S, Part, pause_s
from rmq.store.scrub_worker import PAUSE_S, scrub_periodically
from tests.store.test_log_digests import (
    COUNT,
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
    parts = 0
    done = {file.base_offset: 0 for file in store.log.files.files}
    before = {base: store.digests.scrubbed_ms(base) for base in done}
    store.clock.ms += 1_000
    while any(store.digests.scrubbed_ms(base) == before[base] for base in done):
        store.scrub.next_part()
        parts += 1
        assert parts < 100
    return sorted(store.digests.bad)


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

    def read_disk(path, position, size, buffer):
        done = own(path, position, size, buffer)
        if path.endswith(f"{FILE_SIZE:020d}"):
            buffer[BLOCK_BYTES + 7] ^= 1
        return done

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
    while again.scrub.next_part().is_urgent:
        parts.append(sealed_of(again))
    again.digests.update()
    assert parts[0][:2] == [0, 0]
    assert parts[0][2] > 0
    assert sealed_of(again)[:2] == [4, 4]
    assert not again.digests.bad
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
        (Part(1 << 20), 1 << 30, 7 * DAY_S / 1024),
        (Part(1 << 20), 1 << 50, 1 / 16),
        (Part(1 << 20, is_urgent=True), 1 << 30, 1 / 16),
        (Part(1 << 20), 1 << 21, 3_600.0),
    ],
)
def test_all_is_read_within_the_days_and_at_most_at_the_rate(part, total, expected):
    assert pause_s(part, total, 7, 16 << 20) == pytest.approx(expected)


async def test_the_loop_reports_what_it_finds(store, autojump_clock, nursery):
    async def wait_for_messages():
        await trio.sleep_forever()

    block, found = damage(store, 200, 45), trio.Event()
    token = trio.lowlevel.current_trio_token()
    store.digests.on_bad = lambda: token.run_sync_soon(found.set)
    nursery.start_soon(scrub_periodically, store, wait_for_messages)
    await found.wait()
    assert list(store.digests.bad) == [block]
    assert numbers_of(store)


async def test_it_does_nothing_without_days(opened, autojump_clock):
    with trio.fail_after(1):
        await scrub_periodically(opened(scrub_days=0), trio.sleep_forever)


# -- disks that cannot read


def break_disk(monkeypatch, wanted, code=errno.EIO):
    """Let reads of a (path, block) fail, as a disk with bad sectors does."""
    own = module.read_disk

    def read_disk(path, position, size, buffer):
        blocks = range(position // BLOCK_BYTES, -(-(position + size) // BLOCK_BYTES))
        if any((int(os.path.basename(path)), block) in wanted for block in blocks):
            raise OSError(code, os.strerror(code), path)
        return own(path, position, size, buffer)

    monkeypatch.setattr(module, "read_disk", read_disk)


def test_a_block_that_cannot_be_read_is_bad_and_the_scrub_goes_on(
    store, monkeypatch, caplog
):
    """It stayed at this part for ever, with a line of debug."""
    break_disk(monkeypatch, {(FILE_SIZE, 1)})
    monkeypatch.setattr(module, "_read_memory", lambda *_: b"")
    begin = FILE_SIZE + BLOCK_BYTES
    later = damage(store, 590, 45)
    assert scrub_all(store) == [begin, later]
    text = f"offsets {begin} to {begin + BLOCK_BYTES} cannot be read from the disk"
    assert text in caplog.text
    assert text in str(store.digests.bad[begin])


def test_what_memory_still_has_replaces_what_cannot_be_read(store, monkeypatch):
    break_disk(monkeypatch, {(FILE_SIZE, 1)})
    assert scrub_all(store) == []


def test_a_lack_of_descriptors_is_no_damage_and_other_files_go_first(
    store, monkeypatch
):
    scrub_all(store)
    break_disk(monkeypatch, {(0, 2)}, errno.EMFILE)
    store.clock.ms += 1_000
    with pytest.raises(OSError, match="Too many open files"):
        store.scrub.next_part()
    store.scrub.next_part()
    assert store.digests.scrubbed_ms(FILE_SIZE) == store.clock.now_ms()
    assert not store.digests.bad


def test_records_that_cannot_be_read_are_named(store, opened, caplog):
    """A store without digests; the file became shorter."""
    store.close()
    shutil.rmtree(store.directory.root / "digest")
    again = opened()
    again.digests.update()
    os.truncate(again.log.files.files[0].path, BLOCK_BYTES)
    while again.scrub.next_part().is_urgent:
        pass
    assert again.digests.damaged_records == {
        0: "the record at 0 cannot be read from the disk"
    }
    assert sealed_of(again)[1:2] == [4]


@pytest.mark.usefixtures("without_ring")
def test_a_log_that_was_truncated_while_its_records_were_checked(
    store, opened, make_message
):
    """The position was after the new end, and the scrub stopped there."""
    store.close()
    shutil.rmtree(store.directory.root / "digest")
    again = opened()
    again.digests.update()
    again.scrub.next_part()
    last = again.log.files.files[-1]
    wanted = last.base_offset + 3 * BLOCK_BYTES // 2
    end = min(
        place for place, _ in (place_of(again, n) for n in range(COUNT))
        if place >= wanted
    )  # fmt: skip
    last.zero(end - last.base_offset, last.write_position)
    last.write_position = end - last.base_offset
    again.queues.get("Topic", 0).truncate(end)
    again.positions.cut_to(end)
    again.digests.cut_to(end)
    fill(again, make_message, 40)
    assert again.log.end_offset < last.base_offset + 5 * BLOCK_BYTES // 2
    while again.scrub.next_part().is_urgent:
        pass
    assert not again.digests.damaged_records
    assert sealed_of(again) == [4, 4, 2]


# -- the loop, and late scrubs


async def test_a_broker_without_sends_is_scrubbed(
    store, works_in_loop, autojump_clock, nursery
):
    """The loop waited for the next message."""
    files = store.log.files.files
    digests = [file.digests for file in files]
    for file in files:
        file.digests = None
    nursery.start_soon(scrub_periodically, store, trio.sleep_forever)
    await trio.sleep(1)
    for file, found in zip(files, digests, strict=True):
        file.digests = found
    await trio.sleep(2 * PAUSE_S)
    assert store.scrub.read_bytes


def test_a_scrub_is_late_after_twice_its_days(store):
    scrub_all(store)
    for day, late in [(1, 0), (13, 0), (1, 15)]:
        store.clock.ms += day * DAY_S * 1_000
        part = store.scrub.next_part()
        assert (store.scrub.late_days, part.is_urgent) == (late, late > 0)
