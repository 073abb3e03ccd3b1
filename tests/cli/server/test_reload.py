"""SIGHUP and the service manager: what changes, what waits, what is reported."""

import logging
import signal
import socket

import pytest

from rmq.cli.server.reload import reload_config
from rmq.cli.server.service_manager import notify
from rmq.config.broker import BrokerConfig
from rmq.store.config import StoreConfig
from tests.cli.test_process import process, until_ready


class Running:
    """What runs, as far as a change of its configuration goes."""

    def __init__(self, *configs):
        self._configs = configs
        self.told = []

    def configs(self):
        return self._configs

    def config_changed(self, keys):
        self.told += keys


def test_dynamic_keys_change_and_the_others_are_named(caplog):
    caplog.set_level(logging.INFO)
    broker, store = BrokerConfig(), StoreConfig()
    values = {"fileReservedTime": "48", "listenPort": "1", "brokerName": "other"}
    running = Running(broker, store)
    reload_config(lambda: values, running)
    assert store.reserved_hours == 48
    assert running.told == ["fileReservedTime"]
    assert broker.listen_port == 10911
    said = caplog.text
    assert "fileReservedTime=48 is in effect" in said
    assert "listenPort has changed; it takes effect at the next start" in said


def test_a_wrong_value_changes_nothing(caplog):
    store = StoreConfig()
    values = {"fileReservedTime": "48", "deleteWhen": "noon"}
    running = Running(store)
    reload_config(lambda: values, running)
    assert store == StoreConfig()
    assert running.told == []
    assert "is unchanged" in caplog.text


@pytest.fixture
def manager(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def test_the_service_manager_is_told_in_one_datagram(manager):
    notify("READY=1")
    assert manager.recv(100) == b"READY=1"


def test_no_service_manager_is_no_problem(monkeypatch, caplog):
    monkeypatch.setenv("NOTIFY_SOCKET", "@rmq-nobody-listens-here")
    notify("READY=1")
    assert "cannot notify the service manager" in caplog.text
    monkeypatch.delenv("NOTIFY_SOCKET")
    caplog.clear()
    notify("READY=1")
    assert caplog.text == ""


@pytest.mark.slow
def test_a_process_reads_its_file_again_on_sighup(tmp_path, manager):
    path = tmp_path / "broker.conf"
    path.write_text("bindAddress=127.0.0.1\nfileReservedTime=72\n")
    with process(tmp_path / "s", arguments=("-c", str(path))) as child:
        until_ready(child)
        assert manager.recv(100) == b"READY=1"
        path.write_text("bindAddress=127.0.0.1\nfileReservedTime=48\n")
        child.send_signal(signal.SIGHUP)
        assert manager.recv(100).startswith(b"RELOADING=1\nMONOTONIC_USEC=")
        assert manager.recv(100) == b"READY=1"
        child.send_signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        said = child.stderr.read()
        assert child.wait(20) == 0
    assert "fileReservedTime=48 is in effect" in said
