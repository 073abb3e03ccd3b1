"""`rmq store heal`: the bytes of a broker that runs replace the damaged ones."""

import shutil

from click.testing import CliRunner

from rmq.cli import main
from rmq.testing import BrokerThread
from tests.cluster.test_pair import context_of, log_of
from tests.waiting import wait_until

SETTINGS = {"mappedFileSizeCommitLog": "65536", "maxMessageSize": "8192"}


def heal(root, port):
    path = root.with_name("broker.conf")
    path.write_text("mappedFileSizeConsumeQueue=20000\nmaxHashSlotNum=1250000\n")
    arguments = ["store", "heal", root, "--from", f"127.0.0.1:{port}", "-c", path]
    return CliRunner().invoke(main, [*map(str, arguments)])


def test_a_store_is_healed_from_a_broker(tmp_path):
    more = SETTINGS | {"rmq.haPeers": "127.0.0.1"}
    image = tmp_path / "image"
    with BrokerThread(tmp_path / "broker", more) as broker:
        for number in range(100):
            broker.send("T", b"%d" % number * 500)
        store = context_of(broker).store
        wait_until(lambda: store.claim.written_offset == store.log.end_offset)
        shutil.copytree(tmp_path / "broker", image)
        first = min((image / "commitlog").iterdir())
        first.unlink()
        last = max(each for each in (image / "commitlog").iterdir())
        end, port = store.log.end_offset, broker.node.broker.ha_port
        data = bytearray(last.read_bytes())
        data[:100] = bytes(100)
        last.write_bytes(data)
        done = heal(image, port)
        assert done.exit_code == 0, done.output
        assert done.output.count("Healed with") >= 1
        assert f"{image}: the log is whole" in done.output
        assert log_of(image, end) == log_of(tmp_path / "broker", end)
        assert heal(image, port).output.splitlines() == [f"{image}: the log is whole"]


def test_a_broker_that_does_not_allow_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("rmq.tools.heal.LIMIT_S", 0.5)
    image = tmp_path / "image"
    with BrokerThread(tmp_path / "broker", SETTINGS) as broker:
        broker.send("T", b"one")
        shutil.copytree(tmp_path / "broker", image)
        min((image / "commitlog").iterdir()).write_bytes(bytes(65536))
        done = heal(image, broker.node.broker.ha_port)
    assert done.exit_code == 1
    assert "No broker of the group has given the missing bytes" in done.output
