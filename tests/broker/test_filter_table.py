"""consumerFilter.json: versions, selectors of offline groups, a reload."""

import json

import pytest
import trio

from rmq.broker.tables import filters as module
from rmq.broker.tables.filters import FilterTable, FilterWrapper, TopicFilters
from rmq.config.broker import BrokerConfig
from rmq.protocol import fastjson
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.protocol.encoded_members import PER_TURN
from rmq.testing import ManualClock


def wants(text, version, topic="T"):
    return SubscriptionData(
        topic=topic, sub_string=text, sub_version=version, expression_type="SQL92"
    )


def table(tmp_path, clock=None):
    made = FilterTable(tmp_path, clock or ManualClock(), BrokerConfig())
    made.load()
    return made


def test_newer_versions_win_and_bad_selectors_go(tmp_path):
    filters = table(tmp_path)
    filters.register("G", [wants("a > 1", 2)])
    filters.register("G", [wants("a > 2", 1)])
    assert filters.get("T", "G").expression == "a > 1"
    filters.register("G", [wants("a > 2", 3)])
    assert filters.get("T", "G").expression == "a > 2"
    filters.register("G", [wants("a >", 4)])
    assert filters.get("T", "G") is None


def test_the_dead_are_kept_and_come_back(tmp_path):
    filters = table(tmp_path)
    filters.register("G", [wants("a > 1", 2)])
    filters.unregister("G")
    assert filters.get("T", "G").is_dead
    filters.write(filters.snapshot())
    value = json.loads((tmp_path / "consumerFilter.json").read_text())
    saved = value["filterDataByTopic"]["T"]["groupFilterData"]["G"]
    assert saved["bloomFilterData"] == {"bitNum": 112, "bitPos": [24, 26, 83]}
    again = table(tmp_path)
    again.register("G", [wants("a > 1", 2)])
    assert not again.get("T", "G").is_dead


def test_one_host_takes_at_most_half_of_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_FILTERS", 4)
    filters = table(tmp_path)
    for number in range(6):
        filters.register(f"G{number}", [wants("a > 1", 1)], "10.0.0.1:1")
    assert [bool(filters.get("T", f"G{n}")) for n in range(6)] == [True] * 2 + [
        False
    ] * 4
    filters.register("H", [wants("a > 1", 1)], "10.0.0.2:1")
    assert filters.get("T", "H")
    filters.register("G0", [wants("a >", 2)], "10.0.0.1:1")
    filters.register("G5", [wants("a > 1", 1)], "10.0.0.1:1")
    assert filters.get("T", "G5"), "a selector that went makes room"


def whole(filters):
    """The text of the file, written at once."""
    content = FilterWrapper()
    for (topic, group), data in filters._filters.items():
        by_topic = content.filter_data_by_topic
        of_topic = by_topic.setdefault(topic, TopicFilters(topic=topic))
        of_topic.group_filter_data[group] = data
    return fastjson.dumps_pretty(content)


def without_seal(text):
    first, _, rest = text.split(b"\n", 2)
    return first + b"\n" + rest


async def test_the_parts_make_up_the_same_text_as_the_whole(tmp_path):
    filters = table(tmp_path)
    for number in range(60):
        topic = f"T{number % 7}"
        filters.register(f"G{number}", [wants(f"a > {number}", 1, topic)])
    for change in (
        lambda: filters.unregister("G3"),
        lambda: filters.register("G3", [wants("a > 3", 1, "T3")]),
        lambda: filters.register("G4", [wants("a >", 2, "T4")]),
        lambda: filters.register("G5", [wants("b > 5", 2, "T5")]),
        lambda: filters.register("New", [wants("c > 5", 2, "T9")]),
        lambda: filters.register("New", [wants("c >", 3, "T9")]),
    ):
        change()
        await filters.save()
        saved = (tmp_path / "consumerFilter.json").read_bytes()
        assert without_seal(saved) == whole(filters)
    again = table(tmp_path)
    assert again.get("T5", "G5").expression == "b > 5"


async def test_groups_that_are_offline_for_long_are_dropped_in_their_order(tmp_path):
    clock = ManualClock()
    filters = table(tmp_path, clock)
    for name in "ABC":
        filters.register(name, [wants("a > 1", 1)])
    for name in "BAC":
        filters.unregister(name)
        clock.ms += 1_000
    filters.register("A", [wants("a > 1", 1)])
    clock.ms += BrokerConfig().filter_data_clean_time_span_ms - 1_500
    filters.touch()
    await filters.save()
    kept = [name for name in "ABC" if filters.get("T", name)]
    assert kept == ["A", "C"]


@pytest.mark.parametrize("is_one_topic", [True, False])
async def test_a_large_table_is_encoded_in_turns(tmp_path, is_one_topic):
    """All of it was written on the serving thread: a second for 100,000 selectors."""
    filters = table(tmp_path)
    for number in range(1_000):
        topic = "T" if is_one_topic else f"T{number}"
        filters.register(f"G{number}", [wants("a > 1", 1, topic)])
    turns = 0

    async def others():
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await filters._encode()
        nursery.cancel_scope.cancel()
    assert turns >= 1_000 // PER_TURN - 2
    assert b"".join(filters.snapshot()) == whole(filters)
