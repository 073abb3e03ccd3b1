"""Invalid stored values stop a start, or are ignored if the key for that is set."""

import logging

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.cli.config.sources import gather_values
from rmq.cli.server.reload import reload_config
from rmq.config.option import build
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.store.config import StoreConfig
from tests.cli.server.test_reload import Running

IGNORE = "rmq.ignoreBadStoredValues"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "broker.conf"


def start(*arguments):
    return CliRunner().invoke(main, arguments)


def test_a_broker_names_key_and_file_of_a_value_that_cannot_be(path):
    path.write_text(f"scanNotActiveBrokerInterval={'9' * 400}\nfileReservedTime=0\n")
    result = start("broker", "-c", str(path), "-p")
    assert result.exit_code == 1
    for word in (
        str(path),
        "scanNotActiveBrokerInterval=",
        "fileReservedTime=",
        IGNORE,
    ):
        assert word in result.stderr
    assert len(result.stderr) < 600


def test_a_name_server_names_them_too(path):
    path.write_text("waitSecondsForService=2147483647\n")
    result = start("namesrv", "-c", str(path))
    assert result.exit_code == 1
    assert f"{path}: waitSecondsForService=2147483647: the largest" in result.stderr


@pytest.mark.parametrize("in_file", [False, True])
def test_a_start_goes_on_with_the_default_where_that_is_wished(path, in_file, caplog):
    path.write_text(
        "scanNotActiveBrokerInterval=1\nwaitSecondsForService=7\n"
        + (f"{IGNORE}=true\n" if in_file else "")
    )
    settings = () if in_file else (f"{IGNORE}=true",)
    classes = (NamesrvConfig, NamesrvListenConfig)
    config = build(NamesrvConfig, gather_values(str(path), settings, classes))
    assert config.scan_interval_ms == NamesrvConfig().scan_interval_ms
    assert config.wait_seconds_for_service == 7
    assert "scanNotActiveBrokerInterval=1: the smallest value is 100" in caplog.text
    assert str(path) in caplog.text


def test_values_that_do_not_go_together_are_found_too(path, caplog):
    path.write_text(f"deleteWhen=noon\n{IGNORE}=true\nflushIntervalCommitLog=9\n")
    config = build(StoreConfig, gather_values(str(path), (), (StoreConfig,)))
    assert (config.delete_hours, config.flush_interval_ms) == ("04", 9)
    assert "deleteWhen=noon" in caplog.text


def test_a_wrong_flag_is_not_passed_over(path):
    path.write_text(f"{IGNORE}=true\nflushIntervalCommitLog=9\n")
    flags = ["--set", "flushIntervalCommitLog=0"]
    result = start("broker", "-c", str(path), *flags, "-p")
    assert result.exit_code == 1
    assert "flushIntervalCommitLog=0: the smallest value is 1" in result.stderr


@pytest.mark.parametrize("breakage", ["absent", "folder", "bytes", "value", "escape"])
def test_a_file_that_is_absent_or_broken_at_a_reload_changes_nothing(
    path, breakage, caplog
):
    caplog.set_level(logging.INFO)
    if breakage == "folder":
        path.mkdir()
    elif breakage != "absent":
        texts = {
            "bytes": b"a=\xff\xfe",
            "value": b"deleteWhen=noon",
            "escape": b"a=\\u12",
        }
        path.write_bytes(texts[breakage])
    store = StoreConfig(reserved_hours=48)
    running = Running(store)
    reload_config(lambda: gather_values(str(path), (), (StoreConfig,)), running)
    assert store == StoreConfig(reserved_hours=48)
    assert running.told == []
    assert "is unchanged" in caplog.text
    assert str(path) in caplog.text
