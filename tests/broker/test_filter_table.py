"""consumerFilter.json: versions, selectors of offline groups, a reload."""

import json

from rmq.broker.config import BrokerConfig
from rmq.broker.tables.filters import FilterTable
from rmq.protocol.bodies.heartbeat import SubscriptionData
from rmq.testing import ManualClock


def wants(text, version):
    return SubscriptionData(
        topic="T", sub_string=text, sub_version=version, expression_type="SQL92"
    )


def table(tmp_path):
    made = FilterTable(tmp_path, ManualClock(), BrokerConfig())
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
    filters = table(tmp_path)
    monkeypatch.setattr(filters._quota, "limit", 4)
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
