"""The proof that one log is the beginning of another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.log_prefix import Overlap
from rmq.core.errors import Diverged


@given(
    before=st.binary(max_size=20),
    last=st.binary(min_size=2, max_size=20),
    more=st.binary(max_size=20),
    cuts=st.lists(st.integers(1, 60)),
)
def test_what_follows_the_same_record_is_new(before, last, more, cuts):
    before = b"\0" + before
    overlap = Overlap((len(before), last))
    assert overlap.report == len(before)
    log = before + last + more
    taken, at = b"", overlap.report
    for end in [*sorted(c for c in cuts if at < c < len(log)), len(log)]:
        if end == at:
            continue
        offset, new = overlap.skip_equal(at, memoryview(log[at:end]))
        assert new == b"" or offset == len(before + last) + len(taken)
        assert overlap.is_proven == (end >= len(before + last))
        taken, at = taken + bytes(new), end
    assert taken == more


@given(last=st.binary(min_size=1, max_size=20), at=st.integers(0, 19))
def test_another_record_at_the_same_place_is_a_fork(last, at):
    other = bytearray(last)
    other[at % len(last)] ^= 1
    overlap = Overlap((100, last))
    with pytest.raises(Diverged, match="another record"):
        overlap.skip_equal(100, memoryview(bytes(other)))


def test_a_master_that_begins_elsewhere_is_refused():
    with pytest.raises(Diverged, match="instead of at offset 100"):
        Overlap((100, b"record")).skip_equal(99, memoryview(b"xrecord"))


def test_an_empty_log_asks_for_all_but_the_first_byte():
    overlap = Overlap(None)
    assert overlap.report == 1  # 0 would ask for the newest file
    assert overlap.is_proven
    offset, new = overlap.skip_equal(1, memoryview(b"abc"))
    assert (offset, bytes(new)) == (0, b"\0abc")
    assert overlap.skip_equal(4, memoryview(b"def")) == (4, b"def")


def test_an_empty_log_begins_with_the_oldest_message_of_the_master():
    overlap = Overlap(None, 4096)
    assert overlap.report == 4096
    assert overlap.skip_equal(4096, memoryview(b"abc")) == (4096, b"abc")


def test_an_empty_log_is_not_begun_in_the_middle():
    with pytest.raises(Diverged, match="instead of at offset 1"):
        Overlap(None).skip_equal(32_768, memoryview(b"abc"))


def test_a_log_of_one_record_asks_without_its_first_byte():
    overlap = Overlap((0, b"\0first"))
    assert overlap.report == 1
    assert not overlap.is_proven
    assert overlap.skip_equal(1, memoryview(b"firstmore")) == (6, b"more")
