import os

import pytest

from rmq_spark.segments.commit_log import LostData, find_segments, walk_records
from rmq_spark.sql.log_snapshot import StoreLog
from tests.spark.stores import orders


def places(frozen):
    return [(s.start, s.end) for _, splits in frozen.segment_splits() for s in splits]


def test_a_frozen_log_keeps_its_end(writer):
    writer.append(orders(1_000))
    log = StoreLog(writer.root, "a")
    before = log.freeze()
    seen = places(before)
    writer.append(orders(1_000))
    assert places(before) == seen
    assert before.end < log.freeze().end == writer.end


def test_the_tail_is_walked_on_from_where_it_ended(writer):
    log = StoreLog(writer.root, "a")
    ends = []
    for _ in range(12):
        writer.append(orders(100))
        ends.append(log.freeze().end)
        assert places(log.freeze())[-1][1] == writer.end
    assert ends == sorted(set(ends))
    assert len(find_segments(writer.root)) > 2


def test_an_empty_store_ends_at_its_start(writer):
    frozen = StoreLog(writer.root, "a").freeze()
    assert (frozen.end, places(frozen)) == (0, [])
    (writer.root / "commitlog" / f"{0:020d}").write_bytes(bytes(5_000))
    assert places(StoreLog(writer.root, "a").freeze()) == []


def test_missing_segments_are_an_error_or_logged(writer, caplog):
    writer.append(orders(2_000))
    os.remove(find_segments(writer.root)[2].path)
    with pytest.raises(LostData, match=r"is missing.*--allow-loss"):
        places(StoreLog(writer.root, "a").freeze())
    places(StoreLog(writer.root, "a", fails_on_loss=False).freeze())
    assert "is missing" in caplog.text


def test_records_after_the_end_are_told_once(writer, caplog):
    writer.append(orders(200))
    (segment,) = find_segments(writer.root)
    bad = walk_records(segment, 0, 20_000).position
    with open(segment.path, "r+b") as file:
        file.seek(bad + 4)
        file.write(b"\xff")
    log = StoreLog(writer.root, "a")
    assert log.freeze().end == bad
    assert f"is damaged at offset {bad}" in caplog.text
    caplog.clear()
    log.freeze()
    assert caplog.text == ""


def test_a_torn_last_record_is_the_end_without_a_word(writer, caplog):
    writer.append(orders(200))
    (segment,) = find_segments(writer.root)
    last = walk_records(segment, 0, writer.end - 100).position
    before = max(
        p
        for p in (walk_records(segment, 0, last - i).position for i in range(400))
        if p < last
    )
    with open(segment.path, "r+b") as file:
        file.seek(last - 150)
        file.write(b"\xff")
    assert StoreLog(writer.root, "a").freeze().end == before
    assert caplog.text == ""
