"""The ring against its model: wraps, laps, what is left of a run, and of a torn one."""

import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.decode import RecordStatus, check_record, decode_record
from rmq._fastpath.log.scan import walk_log
from rmq._fastpath.log.tail_ring import TailRing
from tests.model.record import ModelRecord
from tests.model.tail_ring import ModelRing

SIZE = 64 * 1024
HEAD = 64 * 1024


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "ring")


def same(ring, model):
    assert (ring.begin, ring.appended_offset) == (model.begin, model.end)
    assert (ring.written_offset, ring.floor_offset) == (model.written, model.floor)
    assert ring.free_size == model.room


@settings(max_examples=30)
@given(
    begin=st.integers(0, 1 << 40),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "write", "read"]),
            st.integers(0, SIZE // 8 + 10),
            st.integers(0, SIZE),
        ),
        max_size=60,
    ),
)
def test_a_ring_does_what_its_model_does(tmp_path_factory, begin, steps):
    path = tmp_path_factory.mktemp("ring") / "ring"
    ring, model = TailRing(str(path), 7, size=SIZE, begin=begin), ModelRing(SIZE, begin)
    same(ring, model)
    for number, (step, size, back) in enumerate(steps):
        if step == "add":
            data = bytes([number + 1]) * size
            if model.add(data):
                ring.add(data)
            else:
                with pytest.raises(ValueError, match="no room"):
                    ring.add(data)
        elif step == "write":
            model.written = min(model.end, model.written + back)
            ring.mark_written(model.written)
        else:
            offset = max(0, model.end - back)
            expected = model.read(offset, size)
            if expected is None:
                with pytest.raises(IndexError, match="outside"):
                    ring.read(offset, size)
            else:
                assert ring.read(offset, size) == expected
        same(ring, model)


def test_laps_leave_the_last_bytes_in_one_piece(path):
    ring = TailRing(path, 1, size=SIZE, begin=123)
    data = os.urandom(SIZE * 3)
    for at in range(0, len(data), 4_000):
        ring.add(data[at : at + 4_000])
        ring.mark_written(ring.appended_offset)
    assert ring.floor_offset == ring.appended_offset - SIZE
    assert ring.read(ring.floor_offset, SIZE) == data[-SIZE:]


def test_a_margin_stays_between_what_is_appended_and_what_is_not_written(path):
    ring = TailRing(path, 1, size=SIZE, begin=0)
    while ring.free_size >= ring.margin:
        ring.add(bytes(ring.margin))
    assert ring.appended_offset == SIZE * 3 // 4
    with pytest.raises(ValueError, match="no room for 1 bytes"):
        ring.add(b"x")
    ring.mark_written(1)
    ring.add(b"x")


@pytest.mark.parametrize("size", [1, 4_096, SIZE + 1])
def test_its_size_is_whole_pages(path, size):
    with pytest.raises(ValueError, match="multiple of the page size"):
        TailRing(path, 1, size=size)


def test_a_name_in_use_is_not_taken(path):
    TailRing(path, 1, size=SIZE)
    with pytest.raises(FileExistsError):
        TailRing(path, 2, size=SIZE)


def test_written_moves_inside_of_the_ring_only(path):
    ring = TailRing(path, 1, size=SIZE, begin=10)
    ring.add(b"abc")
    for offset in (9, 14):
        with pytest.raises(ValueError, match=r"is not in 10\.\.13"):
            ring.mark_written(offset)


def record(offset, body=b"body"):
    return ModelRecord(b"Topic", physical_offset=offset, body=body).encode()


def filled(path, *, begin=0, count=100, generation=5):
    """A ring that a run left, and where each of its records begins."""
    ring = TailRing(path, generation, size=SIZE, begin=begin)
    places = []
    for number in range(count):
        places.append(ring.appended_offset)
        ring.add(record(ring.appended_offset, b"%d" % number * 50))
        ring.mark_written(max(begin, ring.appended_offset - SIZE // 2))
    return ring, places


def test_what_a_run_left_is_found_by_its_generation(path):
    ring, places = filled(path)
    left = TailRing(path, 5)
    assert left.written_offset == ring.written_offset
    extent = left.read_leftover(places[0], SIZE)
    status, _, records = walk_log(extent, 0, extent.size)
    assert [each.physical_offset for each in records] == places
    assert status is RecordStatus.END
    with pytest.raises(ValueError, match="not of the last run"):
        TailRing(path, 6)


def test_records_of_an_earlier_lap_are_not_taken_for_new_ones(path):
    _, places = filled(path, count=1_000)
    left = TailRing(path, 5)
    end = places[-1]
    extent = left.read_leftover(end, SIZE)
    status, position, records = walk_log(extent, 0, extent.size)
    assert [each.physical_offset for each in records] == [end]
    assert status is not RecordStatus.OK
    assert check_record(extent, position)[0] is not RecordStatus.BLANK


@pytest.mark.parametrize("page", range(0, SIZE, 4096))
def test_a_page_that_a_power_cut_left_old_ends_what_is_believed(path, page):
    """The page keeps the bytes of the lap before, or none at all."""
    _, places = filled(path, count=1_000)
    begin = places[-40]
    with open(path, "r+b") as file:
        file.seek(HEAD + page)
        file.write(bytes(4096))
    extent = TailRing(path, 5).read_leftover(begin, SIZE)
    _, _, records = walk_log(extent, 0, extent.size)
    for number, each in enumerate(records, 960):
        assert each.physical_offset == places[number]
        whole = extent.read(each.physical_offset - begin, each.size)
        assert decode_record(whole).body == b"%d" % number * 50


def test_what_is_no_ring_is_refused(path):
    for content in (b"", b"x", bytes(HEAD + SIZE), bytes(HEAD)):
        with open(path, "wb") as file:
            file.write(content)
        with pytest.raises(ValueError, match="no ring"):
            TailRing(path, 0)
    os.unlink(path)
    with pytest.raises(FileNotFoundError):
        TailRing(path, 0)


def test_what_a_killed_process_appended_is_there(path):
    script = (
        "import os, signal, sys\n"
        "from rmq._fastpath.log.tail_ring import TailRing\n"
        f"ring = TailRing(sys.argv[1], 9, size={SIZE}, begin=4096)\n"
        "ring.add(b'k' * 5000)\n"
        "ring.mark_written(4100)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, path], check=False)
    left = TailRing(path, 9)
    assert (left.begin, left.written_offset) == (4096, 4100)
    assert left.read_leftover(4096, 5001).read(0, 5001) == b"k" * 5000 + b"\0"
    assert left.read_leftover(4095, 1) is None
