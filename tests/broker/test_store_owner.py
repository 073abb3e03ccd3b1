"""A store that was another broker's is reported."""

import json
import logging

import pytest

from rmq.broker.store_owner import record_owner
from rmq.config.broker import BrokerConfig
from rmq.testing import running_node

A = BrokerConfig(broker_name="a", broker_cluster_name="c")
B = BrokerConfig(broker_name="b", broker_cluster_name="d")


@pytest.fixture
def lines(caplog):
    caplog.set_level(logging.INFO)

    def take():
        found = [each.getMessage() for each in caplog.records]
        caplog.clear()
        return found

    return take


def test_the_first_broker_and_the_same_again_are_no_line(tmp_path, lines):
    for _ in range(2):
        record_owner(tmp_path / "config", A)
    assert lines() == []


def test_another_broker_is_one_line_once(tmp_path, lines):
    record_owner(tmp_path / "config", A)
    record_owner(tmp_path / "config", B)
    (line,) = lines()
    assert line == (
        f"the store {tmp_path} belonged to broker a of cluster c; from now on it "
        "belongs to broker b of cluster d. If this is a mistake, stop this broker, and "
        "correct storePathRootDir or brokerName"
    )
    record_owner(tmp_path / "config", B)
    assert lines() == []


@pytest.mark.parametrize("text", ["", "{", "[1]", "{}", '"a"', "\x00" * 30])
def test_a_damaged_file_is_written_again(tmp_path, lines, text):
    path = tmp_path / "config" / "owner.json"
    path.parent.mkdir()
    path.write_text(text)
    record_owner(path.parent, A)
    assert lines() == []
    assert json.loads(path.read_text()) == {"brokerName": "a", "brokerClusterName": "c"}


def test_a_name_that_is_no_name_is_shown_safely(tmp_path, lines):
    path = tmp_path / "config" / "owner.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"brokerName": "x\n" * 500}))
    record_owner(path.parent, A)
    (line,) = lines()
    assert "\n" not in line
    assert len(line) < 1_000


def test_a_file_that_cannot_be_written_is_no_error(tmp_path, lines):
    folder = tmp_path / "config"
    folder.write_text("in the way")
    record_owner(folder, A)
    (line,) = lines()
    assert "owner.json is not saved: " in line


async def test_a_start_with_another_name(tmp_path, lines):
    for name, count in (("one", 0), ("two", 1), ("two", 0)):
        async with running_node(tmp_path, {"brokerName": name}):
            found = [line for line in lines() if "belonged to broker" in line]
        assert len(found) == count, name
