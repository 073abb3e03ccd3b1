"""Segments of a folder that a broker writes to while it is listed."""

import os

import pytest

from rmq.core.segments import Segment, segments_of

SIZE = 100


def segment(folder, base_offset, size=SIZE):
    path = folder / f"{base_offset:020d}"
    path.write_bytes(bytes(size))
    return Segment(str(path), base_offset, size)


@pytest.fixture
def left_out(monkeypatch):
    """Names that a listing does not have, as the kernel may leave out new files."""
    names, listdir = set(), os.listdir

    def without(folder):
        return [name for name in listdir(folder) if name not in names]

    monkeypatch.setattr(os, "listdir", without)
    return names


@pytest.mark.parametrize("missing", [[200], [100, 200], [200, 300]])
def test_a_file_that_the_listing_left_out_is_there(tmp_path, left_out, missing):
    expected = [segment(tmp_path, number * SIZE) for number in range(5)]
    left_out |= {f"{base_offset:020d}" for base_offset in missing}
    assert segments_of(tmp_path) == expected


def test_a_gap_stays_a_gap(tmp_path):
    expected = [segment(tmp_path, base_offset) for base_offset in (0, 300, 400)]
    assert segments_of(tmp_path) == expected


def test_a_file_without_a_byte_is_none(tmp_path, left_out):
    first = segment(tmp_path, 0)
    segment(tmp_path, 100, size=0)
    last = segment(tmp_path, 200)
    assert segments_of(tmp_path) == [first, last]
    left_out.add(f"{100:020d}")
    assert segments_of(tmp_path) == [first, last]


def test_a_file_that_went_away_is_none(tmp_path, monkeypatch):
    kept = segment(tmp_path, 100)
    names = [f"{base_offset:020d}" for base_offset in (0, 100)]
    monkeypatch.setattr(os, "listdir", lambda _folder: names)
    assert segments_of(tmp_path) == [kept]


@pytest.mark.parametrize(
    "name", ["notes.txt", "12", "\N{ARABIC-INDIC DIGIT ZERO}" * 20, "0" * 21]
)
def test_other_names_are_no_segments(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / f"{0:020d}").mkdir()
    assert segments_of(tmp_path) == []
