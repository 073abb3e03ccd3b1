import os
import random
from itertools import pairwise

import pytest

from rmq.core.errors import StoreError
from rmq_spark.segments import commit_log, plan
from tests.spark.stores import ENTRY, Sent, StoreWriter, orders


@pytest.fixture
def store(writer):
    writer.append(orders(3_000))
    return writer.root


def start_positions(store):
    """All boundaries between records, found record by record."""
    starts = []
    for segment in commit_log.find_segments(store):
        at = segment.base_offset
        after = commit_log.walk_records(segment, at, at + 1).position
        while after > at:
            starts.append(at)
            at, after = (
                after,
                commit_log.walk_records(segment, after, after + 1).position,
            )
    return starts


@pytest.mark.parametrize("use_queues", [True, False])
@pytest.mark.parametrize("split_bytes", [1, 7_000, 50_000, 1 << 20])
def test_ranges_cover_the_log_between_records(store, split_bytes, use_queues):
    end = commit_log.find_end(store)
    ranges = plan.plan_ranges(
        store, 0, end, split_bytes=split_bytes, use_queues=use_queues
    )
    starts = set(start_positions(store))
    assert ranges[0].start == 0
    assert ranges[-1].end == end
    for one, two in pairwise(ranges):
        assert one.end == two.start
    for part in ranges:
        assert part.start in starts
        assert part.base_offset <= part.start < part.end <= part.file_end
    assert len(ranges) >= max(8, end // max(split_bytes, 6_000))


def test_only_the_tail_is_checked_by_crc_unless_told(store):
    end = commit_log.find_end(store)
    for verify, expected in (
        ("tail", {False, True}),
        ("all", {True}),
        ("none", {False}),
    ):
        ranges = plan.plan_ranges(store, 0, end, split_bytes=9_000, verify_crc=verify)
        assert {part.check_crc for part in ranges} == expected
        assert ranges[-1].check_crc == (verify != "none")


def test_queue_entries_are_hints_that_records_must_confirm(store):
    end = commit_log.find_end(store)
    right = plan.plan_ranges(store, 0, end, split_bytes=9_000, use_queues=False)
    for path in store.glob("consumequeue/*/*/*"):
        count = path.stat().st_size // ENTRY.size
        path.write_bytes(b"".join(ENTRY.pack(97 * i, 200, 0) for i in range(count)))
    assert plan.plan_ranges(store, 0, end, split_bytes=9_000) == right


def test_the_end_is_where_the_walk_finds_no_record(store, writer):
    assert commit_log.find_end(store) == writer.end
    last = commit_log.find_segments(store)[-1]
    before = start_positions(store)[-1]
    os.truncate(last.path, writer.end - last.base_offset - 1)
    assert commit_log.find_end(store) == before
    assert commit_log.find_end(store, confirm_offset=5) == 5


def test_segments_made_ahead_hold_no_records(store, writer):
    base = commit_log.find_segments(store)[-1].end_offset
    path = store / "commitlog" / f"{base:020d}"
    path.write_bytes(bytes(100_000))
    assert commit_log.find_end(store) == writer.end


def test_an_empty_store_has_no_end():
    assert commit_log.walked_end([]) == 0


def test_a_running_broker_is_given_time(store, writer, monkeypatch):
    slept = []
    monkeypatch.setattr(commit_log.time, "sleep", slept.append)
    commit_log.find_end(store)
    assert slept == []
    (store / "abort").write_text("1")
    assert commit_log.find_end(store) == writer.end
    assert slept == [commit_log.SETTLE_MS / 1000]


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_ends_at_a_boundary_within_its_limits(store, writer, seed):
    chance = random.Random(seed)
    starts = [*start_positions(store), writer.end]
    start = chance.choice(starts[:-1])
    size = chance.randrange(1, 300_000)
    end = plan.align(store, start, writer.end, max_bytes=size, max_records=None)
    assert end in starts
    assert end == min(s for s in starts if s >= min(start + size, writer.end))


def test_a_batch_has_as_many_records_as_allowed(store, writer):
    at, total = 0, 0
    while at < writer.end:
        after = plan.align(store, at, writer.end, max_bytes=1 << 40, max_records=700)
        count = commit_log.count_records(store, at, after)
        assert count == 700 or after == writer.end
        at, total = after, total + count
    assert total == 3_000


def test_last_record_of_any_part(store):
    segments = commit_log.find_segments(store)
    starts = start_positions(store)
    for n in range(0, len(starts) - 2, 7):
        before, place, end = starts[n : n + 3]
        offset, data = commit_log.last_record(segments, 0, end)
        if data and offset == place:
            assert commit_log.read_bytes(segments, offset, len(data)) == data
        else:  # a blank record stands at `place`
            assert offset == before
        assert commit_log.last_record(segments, place, end)[0] in (place, end)


def test_last_record_far_from_the_start(tmp_path):
    writer = StoreWriter(tmp_path, 64 << 20)
    writer.append(Sent(b"t", body=bytes(3 << 20)) for _ in range(12))
    segments = commit_log.find_segments(tmp_path)
    offset, data = commit_log.last_record(segments, 0, writer.end)
    assert offset + len(data) == writer.end


def test_missing_segments_are_an_error_or_passed_over(store, writer, caplog):
    segments = commit_log.find_segments(store)
    os.remove(segments[2].path)
    with pytest.raises(commit_log.LostData, match="failOnDataLoss=false") as raised:
        plan.plan_ranges(store, 0, writer.end, split_bytes=1 << 20)
    assert f"from {segments[2].base_offset} to {segments[3].base_offset}" in str(
        raised.value
    )
    ranges = plan.plan_ranges(
        store, 0, writer.end, split_bytes=1 << 20, fail_on_loss=False
    )
    assert segments[2].base_offset not in {part.base_offset for part in ranges}
    assert "is missing" in caplog.text


def test_a_wrong_path_is_told_in_a_sentence(tmp_path):
    with pytest.raises(StoreError, match="the folder does not exist"):
        commit_log.find_segments(tmp_path / "nowhere")
    with pytest.raises(StoreError, match="neither commitlog/ nor segments"):
        commit_log.find_segments(tmp_path)


def test_a_folder_of_segments_is_a_store(store):
    assert commit_log.find_segments(store / "commitlog") == commit_log.find_segments(
        store
    )


def test_overlapping_segments_are_refused(store):
    (store / "commitlog" / f"{50_000:020d}").write_bytes(b"x")
    with pytest.raises(StoreError, match="after the start of"):
        commit_log.find_segments(store)


def test_what_is_not_a_segment_is_not_looked_at(store):
    before = commit_log.find_segments(store)
    (store / "commitlog" / "notes.txt").write_text("x")
    (store / "commitlog" / f"{10**15:020d}").mkdir()
    assert commit_log.find_segments(store) == before
