"""`rmq admin updateStaticTopic` and `remappingStaticTopic`: where logical queues go."""

from collections import Counter

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.cli.admin.static_topics import (
    BLOCK,
    add_queues,
    first_offset,
    move_queues,
    queue_leaders,
)
from rmq.protocol.bodies.queue_mapping import wrong_mapping

NAMES = st.sets(st.sampled_from("abcde"), min_size=1).map(sorted)


def spread(configs):
    return Counter(queue_leaders(configs).values())


@given(NAMES, st.integers(1, 12), NAMES, st.integers(1, 12))
def test_queues_are_spread_and_each_has_a_place_of_its_own(names, count, others, more):
    configs = {}
    add_queues("T", configs, names, count, 1_000)
    assert sorted(queue_leaders(configs)) == list(range(count))
    assert max(spread(configs).values()) - min(map(spread(configs).get, configs)) <= 1
    add_queues("T", configs, others, count + more, 1_000)
    assert sorted(queue_leaders(configs)) == list(range(count + more))
    places = [
        (part.bname, part.queue_id)
        for config in configs.values()
        for parts in config.mapping_detail.hosted_queues.values()
        for part in parts
    ]
    assert len(places) == len(set(places)) == count + more
    assert {config.mapping_detail.epoch for config in configs.values()} == {2_000}


@given(NAMES, NAMES, st.integers(1, 12))
def test_moved_queues_have_new_leaders_and_right_mappings(names, targets, count):
    configs = {}
    add_queues("T", configs, names, count, 1_000)
    before = {name: each.mapping_detail.encode() for name, each in configs.items()}
    old = queue_leaders(configs)
    moved = move_queues("T", configs, targets, 1_000)
    assert set(queue_leaders(configs).values()) <= set(targets)
    loads = [spread(configs)[name] for name in targets]
    assert max(loads) - min(loads) <= 1
    for queue_id, (new, origin) in moved.items():
        assert old[queue_id] == origin != new
        here, there = (
            configs[name].mapping_detail.hosted_queues[queue_id]
            for name in (new, origin)
        )
        assert here == there
        assert [part.logic_offset for part in here] == [0, -1]
    for name, text in before.items():
        kind = type(configs[name].mapping_detail)
        assert wrong_mapping(kind.decode(text), configs[name].mapping_detail) is None


def test_a_topic_does_not_shrink():
    configs = {}
    add_queues("T", configs, ["a"], 4, 0)
    with pytest.raises(click.UsageError, match="already has 4 queues"):
        add_queues("T", configs, ["a"], 4, 0)


@given(st.integers(0, 10**12))
def test_a_part_begins_at_least_half_a_block_after_the_end(end):
    begin = first_offset(end)
    assert begin % BLOCK == 0
    assert BLOCK // 2 < begin - end <= BLOCK + BLOCK // 2
