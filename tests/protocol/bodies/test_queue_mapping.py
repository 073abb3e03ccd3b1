"""Logical queues: which part has an offset, and which mappings are wrong."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.core.errors import RequestRejected
from rmq.protocol.bodies.queue_mapping import (
    LogicQueueMappingItem,
    TopicQueueMappingDetail,
    TopicQueueMappingSerializeWrapper,
    part_after,
    part_at,
    wrong_mapping,
    wrong_parts,
)

JAVA = (
    b'{"bname":"broker-golden","currIdMap":{},"dirty":false,"epoch":1795229106949,'
    b'"hostedQueues":{0:[{"bname":"broker-golden","endOffset":-1,"gen":0,'
    b'"logicOffset":0,"queueId":0,"startOffset":0,"timeOfEnd":-1,"timeOfStart":-1}]},'
    b'"scope":"__global__","topic":"AdmStatic55","totalQueues":1}'
)
"""As mqadmin 5.5.0 sends it: numbers are names without quotes."""


def part(gen, logic, *, broker="a", queue_id=0, **more):
    return LogicQueueMappingItem(
        gen=gen, logic_offset=logic, bname=broker, queue_id=queue_id, **more
    )


def mapping(parts, *, epoch=1, broker="a", **more):
    return TopicQueueMappingDetail(
        topic="T", bname=broker, epoch=epoch, hosted_queues={0: parts}, **more
    )


@st.composite
def chains(draw, min_size=1):
    """Parts with gaps between them, as remapping leaves them."""
    sizes = draw(st.lists(st.integers(0, 50), min_size=min_size, max_size=6))
    parts, logic, gen = [], 0, draw(st.integers(0, 3))
    for size in sizes:
        parts.append(part(gen, logic, broker=draw(st.sampled_from("abc"))))
        logic += size + draw(st.integers(1, 20))
        gen += draw(st.integers(1, 3))
    return parts


def test_javas_text_is_read_and_registered():
    detail = TopicQueueMappingDetail.decode(JAVA)
    assert detail.leader_of(0).logic_offset == 0
    assert detail.info().encode() == (
        b'{"bname":"broker-golden","currIdMap":{"0":0},"dirty":false,'
        b'"epoch":1795229106949,"scope":"__global__","topic":"AdmStatic55",'
        b'"totalQueues":1}'
    )
    file = TopicQueueMappingSerializeWrapper(topic_queue_mapping_info_map={"T": detail})
    assert TopicQueueMappingSerializeWrapper.decode(file.encode()) == file


@pytest.mark.parametrize(
    "text", [b'{"hostedQueues":7}', b'{"epoch":"x"}', b'{"hostedQueues":{"x":[]}}', b""]
)
def test_a_mapping_of_another_shape_is_refused(text):
    with pytest.raises(RequestRejected):
        TopicQueueMappingDetail.decode(text)


@given(chains(), st.integers(-5, 500))
def test_the_part_of_an_offset_is_the_last_one_that_begins_before_it(parts, offset):
    expected = [each for each in parts if each.logic_offset <= offset]
    assert part_at(parts, offset) is (expected or parts[:1])[-1]


@given(chains(), st.integers(0, 60))
def test_offsets_go_there_and_back(parts, physical):
    for each in parts:
        assert each.physical_offset(each.logical_offset(physical)) == physical
        assert (
            each.logical_offset(physical)
            == physical + each.offset_delta
            == each.reported_offset(physical)
        )


@given(chains())
def test_chains_are_right_and_parts_follow_each_other(parts):
    assert wrong_parts(parts) is None
    for first, second in itertools.pairwise(parts):
        assert part_after(parts, first) is second
    assert part_after(parts, parts[-1]) is None


@given(chains(min_size=2), st.data())
def test_an_undecided_part_is_neither_read_nor_told(parts, data):
    offset = data.draw(st.integers(0, 1_000))
    undecided = part(parts[-1].gen + 1, -1)
    chain = [*parts, undecided]
    assert wrong_parts(chain) is None
    assert part_at(chain, offset) is part_at(parts, offset)
    assert part_after(chain, parts[-1]) is None
    assert undecided.reported_offset(3) == -1
    assert part_at([undecided], 0) is None


@given(chains(min_size=2), st.data())
def test_parts_in_another_order_are_wrong(parts, data):
    first = data.draw(st.integers(0, len(parts) - 2))
    parts[first], parts[first + 1] = parts[first + 1], parts[first]
    assert wrong_parts(parts) == "The gen does not increase monotonically"


@pytest.mark.parametrize(
    ("parts", "remark"),
    [
        ([part(-1, 0)], "should not be negative"),
        ([part(0, 0, queue_id=-1)], "should not be negative"),
        ([part(0, -1), part(1, 10)], "negative logic offset"),
        ([part(0, 0, start_offset=5, end_offset=3)], "smaller than the start offset"),
        ([part(0, 10), part(1, 10)], "base logic offset does not increase"),
        ([part(0, 0, end_offset=10), part(1, 10)], "max logic offset does not"),
    ],
)
def test_wrong_parts_are_named(parts, remark):
    assert remark in wrong_parts(parts)


@pytest.mark.parametrize(
    ("new", "remark"),
    [
        (mapping([part(0, 0)], epoch=4), "small epoch 4 < 5"),
        (mapping([part(0, 0)], epoch=6, scope="x"), "unmatched scope"),
        (mapping([], epoch=6), "null or empty"),
        (mapping([part(0, 0), part(1, 9)], epoch=5), "leader is different"),
        (mapping([part(0, 7)], epoch=6), "another place"),
        (mapping([part(0, 0, queue_id=3)], epoch=6), "another place"),
    ],
)
def test_what_was_decided_stays(new, remark):
    old = mapping([part(0, 0)], epoch=5)
    assert remark in wrong_mapping(old, new)
    assert wrong_mapping(None, mapping([part(0, 0)])) is None


def test_a_queue_may_move_and_its_new_part_be_decided():
    old = mapping([part(0, 0)], epoch=5)
    moved = mapping([part(0, 0), part(1, -1, broker="b")], epoch=6)
    decided = mapping([part(0, 0), part(1, 900, broker="b")], epoch=6)
    assert wrong_mapping(old, moved) is None
    assert wrong_mapping(moved, decided) is None
    assert wrong_mapping(decided, moved) == (
        "The part of generation 1 has another place than before"
    )
    dropped = mapping([], epoch=6)
    dropped.hosted_queues = {}
    assert wrong_mapping(decided, dropped) == "Cannot accept equal epoch with null data"
