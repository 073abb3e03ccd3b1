"""Every number has limits; a value outside is neither accepted nor written."""

import importlib
import pkgutil
import typing

import pytest

import rmq_plugins
from rmq.cluster.config import ReplicationConfig
from rmq.config.broker import BrokerConfig
from rmq.config.changes import MAX_REASONS, MAX_TEXT_SIZE, apply_changes, read_changes
from rmq.config.option import Configuration, bad_values, build, option, options
from rmq.core.errors import ConfigError
from rmq.namesrv.config import NamesrvConfig
from rmq.plugin.registry import PluginSet
from rmq.store.config import StoreConfig


def classes():
    """Every class of the product that holds keys."""
    for module in pkgutil.walk_packages(rmq_plugins.__path__, "rmq_plugins."):
        importlib.import_module(module.name)
    importlib.import_module("rmq.remoting.tls")
    found = [
        kind
        for kind in Configuration.__subclasses__()
        if kind.__module__.startswith(("rmq.", "rmq_plugins."))
    ]
    assert {BrokerConfig, StoreConfig, NamesrvConfig} < set(found)
    return found


def numbers(kind):
    hints = typing.get_type_hints(kind)
    return [mark for field, mark in options(kind) if hints[field.name] in (int, float)]


def test_every_number_has_a_least_and_a_greatest_value():
    marks = [mark for kind in classes() for mark in numbers(kind)]
    assert len(marks) > 50
    assert [m.key for m in marks if m.low is None or m.high is None] == []


def test_a_key_of_two_classes_has_the_same_limits_in_both():
    seen = {}
    for kind in (BrokerConfig, StoreConfig, ReplicationConfig, NamesrvConfig):
        for mark in numbers(kind):
            limits = mark.low, mark.high
            assert seen.setdefault(mark.key, limits) == limits, mark.key


def test_a_number_without_limits_gets_those_of_java():
    class Plain(Configuration):
        """One key."""

        count: int = option(3, key="count", doc="how many")
        is_on: bool = option(True, key="isOn", doc="a switch")

    [mark] = numbers(Plain)
    assert (mark.low, mark.high) == (0, 2**31 - 1)
    assert [m.low for _, m in options(Plain) if m.key == "isOn"] == [None]


def loaded():
    plugins = PluginSet()
    plugins.load("")
    kinds = (
        BrokerConfig,
        StoreConfig,
        ReplicationConfig,
        NamesrvConfig,
        *plugins.config_classes(),
    )
    return [build(kind, {}) for kind in kinds]


def test_no_live_number_is_taken_or_written_beyond_its_limits(tmp_path):
    path = tmp_path / "broker.conf"
    path.write_text("# mine\n")
    configs = loaded()
    live = [mark for one in configs for mark in numbers(type(one)) if mark.dynamic]
    assert len(live) > 20
    for mark in live:
        beyond = mark.low - 1, mark.high + 1, "9" * 400, "-" + "9" * 400, 2**63, "NaN"
        for value in beyond:
            outcome = apply_changes({mark.key: str(value)}, configs, str(path))
            assert set(outcome.refused) == {mark.key}, value
            assert len(outcome.remark) < 200
    assert configs == loaded()
    assert path.read_text() == "# mine\n"


def test_the_file_gets_the_number_and_not_the_spelling(tmp_path):
    path = tmp_path / "broker.conf"
    changes = {"transactionCheckMax": " +\u0667 ", "rmq.stopTimeoutSeconds": "007"}
    assert apply_changes(changes, loaded(), str(path)).refused == {}
    assert path.read_text() == "transactionCheckMax=7\nrmq.stopTimeoutSeconds=7\n"


def test_a_flood_of_unknown_keys_is_answered_briefly():
    many = {f"flushIntervalCommitLag{number}": "1" for number in range(1000)}
    outcome = apply_changes(many, loaded())
    assert len(outcome.refused) == 1000
    assert outcome.remark.count("did you mean flushIntervalCommitLog?") < MAX_REASONS
    assert outcome.remark.endswith("and 984 more")
    outcome = apply_changes({"x" * 60_000: "1"}, loaded())
    assert len(outcome.remark) < 200


def test_the_text_of_a_change_has_a_limit():
    assert read_changes(b"a=1") == {"a": "1"}
    with pytest.raises(ConfigError, match="at most 65536"):
        read_changes(b" " * (MAX_TEXT_SIZE + 1))


def test_bad_values_are_found_alone_and_together():
    values = {
        "flushIntervalCommitLog": "0",
        "deleteWhen": "noon",
        "storeType": "default",
        "unknown": "1",
    }
    bad = bad_values(values, (StoreConfig, BrokerConfig))
    assert set(bad) == {"flushIntervalCommitLog", "deleteWhen"}
    assert "the smallest value is 1" in bad["flushIntervalCommitLog"]


@pytest.mark.parametrize(
    ("values", "guilty"),
    [
        ({"rmq.namesrv.listenPort": "5000", "listenPort": "5000"}, "listenPort"),
        ({"rmq.namesrv.listenPort": "10909"}, "rmq.namesrv.listenPort"),
        ({"listenPort": "9878", "namesrvAddr": "no port"}, "namesrvAddr"),
    ],
)
def test_values_at_odds_name_a_key_that_was_set(values, guilty):
    assert guilty in bad_values(values, (BrokerConfig,))


def test_an_error_that_no_key_causes_is_raised():
    with pytest.raises(ConfigError, match="brokerName"):
        bad_values({}, (BadDefault,))
    with pytest.raises(ConfigError, match="brokerName"):
        bad_values({"listenPort": "1"}, (BadDefault,))


class BadDefault(BrokerConfig):
    """A broker on a host whose name is no name of a broker."""

    broker_name: str = option("a b", key="brokerName", doc="a name")
