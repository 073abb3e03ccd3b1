"""Epochs: Java's file, and where two logs part by their lists."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cluster.epochs import (
    EpochFile,
    Epochs,
    decode_epochs,
    encode_epochs,
)
from rmq.cluster.wire import Epoch
from rmq.core.errors import RemoteProtocolError

OF_JAVA = b"2\n1979516514\n1-0\n2-2820\n"
"""`epochFileCheckpoint` of a Java 5.5.0 broker after a failover; then its `.bak`."""

OF_JAVA_BEFORE = b"1\n1725254278\n1-0\n"
TWO = [Epoch(1, 0), Epoch(2, 2820)]


@pytest.mark.parametrize(
    ("text", "epochs"), [(OF_JAVA, TWO), (OF_JAVA_BEFORE, TWO[:1])]
)
def test_javas_files_are_read_and_written(text, epochs):
    assert decode_epochs(text) == epochs
    assert encode_epochs(epochs) == text


def test_an_unchecked_file_is_read():
    assert decode_epochs(b"1\n0\n7-35\n") == [Epoch(7, 35)]


@pytest.mark.parametrize(
    "text",
    [b"", b"2\n", b"x\n0\n", b"2\n0\n1-0\n", b"1\n5\n1-0\n", b"1\n0\n1:0\n",
     b"2\n0\n2-0\n1-5\n", b"2\n0\n1-5\n2-5\n", b"1\n0\n-1-0\n"],
)  # fmt: skip
def test_damage_is_named(text):
    with pytest.raises(RemoteProtocolError):
        decode_epochs(text)


def test_each_change_is_in_the_file_and_the_one_before_beside_it(tmp_path):
    path = tmp_path / "epochFileCheckpoint"
    epochs = EpochFile(path)
    assert epochs.last_number == 0
    is_new = epochs.begin(Epoch(1, 0))
    assert is_new
    is_new = epochs.begin(Epoch(2, 2820))
    assert is_new
    assert path.read_bytes() == OF_JAVA
    assert path.with_name("epochFileCheckpoint.bak").read_bytes() == OF_JAVA_BEFORE
    path.write_bytes(b"torn")
    assert EpochFile(path).all_epochs() == (Epoch(1, 0),)
    path.unlink()
    assert EpochFile(path).all_epochs() == (Epoch(1, 0),)


def test_an_epoch_without_bytes_is_replaced(tmp_path):
    epochs = EpochFile(tmp_path / "epochs")
    epochs.begin(Epoch(1, 0))
    epochs.begin(Epoch(2, 50))
    is_new = epochs.begin(Epoch(4, 50))
    assert is_new
    assert EpochFile(tmp_path / "epochs").all_epochs() == (Epoch(1, 0), Epoch(4, 50))
    is_new = epochs.begin(Epoch(4, 50))
    assert not is_new


@pytest.mark.parametrize("late", [Epoch(2, 60), Epoch(1, 60), Epoch(3, 49)])
def test_an_older_epoch_is_refused(late):
    epochs = Epochs([Epoch(1, 0), Epoch(2, 50)])
    with pytest.raises(RemoteProtocolError):
        epochs.begin(late)
    assert epochs.all_epochs() == (Epoch(1, 0), Epoch(2, 50))


def test_a_cut_drops_what_has_no_bytes():
    epochs = Epochs([Epoch(1, 0), Epoch(2, 50), Epoch(3, 80)])
    is_dropped = epochs.drop_after(81)
    assert not is_dropped
    is_dropped = epochs.drop_after(80)
    assert is_dropped
    assert epochs.all_epochs() == (Epoch(1, 0), Epoch(2, 50))
    is_dropped = epochs.drop_after(0)
    assert is_dropped
    assert epochs.all_epochs() == ()


def test_the_epoch_of_an_offset():
    epochs = Epochs([Epoch(1, 10), Epoch(3, 50)])
    assert epochs.epoch_at(9) is None
    assert epochs.epoch_at(10) == epochs.epoch_at(49) == (Epoch(1, 10), 50)
    assert epochs.epoch_at(50) == epochs.epoch_at(5_000) == (Epoch(3, 50), None)


@pytest.mark.parametrize(
    ("own", "end", "others", "other_end", "point"),
    [
        ([(1, 0)], 100, [(1, 0)], 80, 80),
        ([(1, 0)], 100, [(1, 0), (2, 60)], 90, 60),
        ([(1, 0), (2, 60)], 100, [(1, 0), (3, 60)], 90, 60),
        ([(1, 0), (2, 60)], 100, [(1, 0), (3, 70)], 90, 60),
        ([(1, 0), (2, 60)], 100, [(1, 0), (2, 60), (3, 120)], 150, 100),
        ([(2, 0)], 100, [(3, 0)], 100, None),
        ([], 0, [(3, 0)], 100, None),
        ([(1, 0)], 100, [], 0, None),
    ],
)
def test_where_two_lists_part(own, end, others, other_end, point):
    epochs = Epochs(Epoch(*each) for each in own)
    others = [Epoch(*each) for each in others]
    assert epochs.consistent_point(end, others, other_end) == point


def at(epochs, end, offset):
    """The slow way: the master that wrote a byte, as the list has it."""
    return None if offset >= end else (epochs.epoch_at(offset) or (None,))[0]


@st.composite
def histories(draw):
    """Two logs as lists of masters, one byte each: the second left the first."""
    masters = draw(st.lists(st.integers(1, 4), min_size=1, max_size=20).map(sorted))
    shared = draw(st.integers(0, len(masters)))
    more = draw(st.lists(st.integers(5, 9), max_size=10).map(sorted))
    return masters, masters[:shared] + more


def epochs_of(masters):
    starts = [i for i, m in enumerate(masters) if i == 0 or masters[i - 1] != m]
    return Epochs(Epoch(masters[start], start) for start in starts)


@given(histories())
def test_the_point_is_where_the_histories_part(logs):
    one, other = logs
    equal = 0
    while equal < min(len(one), len(other)) and one[equal] == other[equal]:
        equal += 1
    lists = epochs_of(one), epochs_of(other)
    point = lists[0].consistent_point(len(one), lists[1].all_epochs(), len(other))
    assert (point or 0) == equal
    for offset in range(equal):
        assert at(lists[0], len(one), offset) == at(lists[1], len(other), offset)


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5)), max_size=15))
def test_no_two_masters_share_number_and_start(steps):
    """Each step: a new master, and how many bytes it appends."""
    epochs, number, end = Epochs(), 0, 0
    seen = {}
    for gap, size in steps:
        number += gap
        epochs.begin(Epoch(number, end))
        assert epochs.last_number == number
        end += size
        for epoch in epochs.all_epochs():
            assert seen.setdefault(epoch.start, epoch).start == epoch.start
    starts = [epoch.start for epoch in epochs.all_epochs()]
    assert starts == sorted(set(starts))
