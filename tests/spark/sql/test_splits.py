import os
from itertools import pairwise

import pytest

from rmq_spark.segments.commit_log import find_segments
from rmq_spark.sql import splits
from rmq_spark.sql.splits import Split, SplitCache, walk_splits
from tests.spark.stores import START_MS, orders


@pytest.fixture
def store(writer, monkeypatch):
    monkeypatch.setattr(splits, "SPLIT_BYTES", 30_000)
    writer.append(orders(1_500))
    return writer.root


def test_splits_cover_a_segment_with_true_times(store):
    first, *_ = find_segments(store)
    found = list(walk_splits(first, first.base_offset))
    assert len(found) == 4
    assert found[0].start == 0
    assert found[-1].end == first.end_offset
    assert all(one.end == two.start for one, two in pairwise(found))
    assert found[0].least_ms == START_MS
    assert found == sorted(found, key=lambda split: split.greatest_ms)


def test_a_clock_that_was_set_back_is_in_the_times(writer):
    early = [each._replace(store_ms=5) for each in orders(1)]
    writer.append([*orders(10), *early, *orders(10)])
    (split,) = walk_splits(find_segments(writer.root)[0], 0)
    assert (split.least_ms, split.greatest_ms) == (5, START_MS)


def test_closed_segments_are_walked_once(store, cache):
    first, *_ = find_segments(store)
    kept = SplitCache(store)
    walked = list(kept.splits_of(first))
    kept.save()
    again = SplitCache(store).splits_of(first)
    assert isinstance(again, list), "known, not walked"
    assert again == walked
    assert len(list(cache.iterdir())) == 1


def test_a_segment_that_changed_is_walked_again(store):
    first, *_ = find_segments(store)
    kept = SplitCache(store)
    list(kept.splits_of(first))
    assert isinstance(kept.splits_of(first), list)
    os.utime(first.path, ns=(1, 1))
    assert not isinstance(kept.splits_of(first), list)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'{"a": 1}', b"\xff", b'{"PATH": [[0, 0, 0, 0], [[0, 9]]]}'],
)
def test_a_damaged_cache_is_made_again(store, cache, text):
    first, *_ = find_segments(store)
    kept = SplitCache(store)
    expected = list(kept.splits_of(first))
    kept.save()
    (file,) = cache.iterdir()
    file.write_bytes(text.replace(b"PATH", first.path.encode()))
    assert list(SplitCache(store).splits_of(first)) == expected


def test_splits_that_leave_a_gap_are_not_believed(store):
    first, *_ = find_segments(store)
    kept = SplitCache(store)
    whole = list(kept.splits_of(first))
    (entry,) = kept.table.values()
    for wrong in (whole[1:], whole[:-1], [whole[0], *whole[2:]], []):
        entry.splits = wrong
        assert list(kept.splits_of(first)) == whole
        (entry,) = kept.table.values()


def test_a_cache_that_cannot_be_written_is_no_failure(store, cache):
    first, *_ = find_segments(store)
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")
    kept = SplitCache(store)
    list(kept.splits_of(first))
    kept.save()
    assert cache.is_file()


def test_a_damaged_segment_is_covered_to_its_end_and_not_kept(store, cache):
    first, *_ = find_segments(store)
    *_, damaged, _last = walk_splits(first, 0)
    with open(first.path, "r+b") as file:
        file.seek(damaged.start + 4)
        file.write(b"\xff")
    kept = SplitCache(store)
    found = list(kept.splits_of(first))
    assert found[-1] == Split(damaged.start, first.end_offset)
    kept.save()
    assert not cache.exists()
