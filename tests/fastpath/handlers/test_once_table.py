"""OnceTable against its model, in small tables that are full all the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.handlers.once_table import OnceTable
from tests.model.stored_once import KeyTable

SMALL, CROWDED = 4096, 7168
"""Sizes with 256 slots, half of them used or five eighths: some lines are full."""

TOPICS = st.sampled_from([b"T", b"Topic", b"T" * 127])
KEYS = st.one_of(
    st.integers(0, 300).map(lambda n: b"7F0163D218B4%08X" % n),
    st.sampled_from([b"k", b"k\0", b"k\0\0", b"", b"x" * 255]),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "find"]), TOPICS, KEYS, st.integers(0, 40)),
    max_size=60,
)


@given(st.sampled_from([SMALL, CROWDED]), st.integers(0, 400), STEPS)
def test_finds_what_its_model_finds(size, earlier, steps):
    table = OnceTable(size)
    model = KeyTable(table.capacity)
    for number in range(earlier):  # many tables are full, and have gone round
        for each in (table, model):
            each.add(b"T", b"7F0163D218B4%08X" % number, number, 0)
    now_ms = 1
    for number, (action, topic, key, ms) in enumerate(steps):
        if action == "add":
            now_ms += ms
            for each in (table, model):
                each.add(topic, key, earlier + number, now_ms)
        since_ms = now_ms - ms
        assert table.find(topic, key, since_ms) == model.find(topic, key, since_ms)
    assert table.count == len(model.entries)


@pytest.mark.parametrize("size", [SMALL, CROWDED])
def test_every_entry_of_a_full_table_is_found_and_no_older_one(size):
    table = OnceTable(size)
    count = 40 * table.capacity
    for number in range(count):
        table.add(b"T", b"%d" % number, number, number)
    found = [table.find(b"T", b"%d" % number, 0) for number in range(count)]
    oldest = count - table.capacity
    assert found == [-1] * oldest + list(range(oldest, count))
    assert table.oldest_ms == oldest


def test_topic_and_key_are_apart():
    table = OnceTable(SMALL)
    table.add(b"ab", b"c", 7, 1)
    assert table.find(b"a", b"bc", 0) == -1
    assert table.find(b"ab", b"c", 1) == 7
    assert table.find(b"ab", b"c", 2) == -1


def test_an_entry_takes_32_bytes_and_a_table_with_room_has_no_oldest():
    table = OnceTable(64 << 20)
    assert table.capacity == 2 << 20
    table.add(b"T", b"k", 0, 5)
    assert table.oldest_ms == 0


@pytest.mark.parametrize("size", [0, -1, 4095, (1 << 34) + 1])
def test_sizes_beyond_the_limits_are_refused(size):
    with pytest.raises(ValueError, match="a table of"):
        OnceTable(size)
