"""A SYNC_MASTER that lost the end of its log gets it from its slave before it opens."""

import shutil

import pytest

from rmq.testing import BrokerThread, NameServerThread
from tests.cluster.test_pair import QUICK, context_of, log_of, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

MASTER = QUICK | {
    "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "2000",
}  # fmt: skip
SLAVE = QUICK | {"brokerRole": "SLAVE", "brokerId": "1"}
RINGS = pytest.mark.parametrize("ring", ["0", "1048576"])


@pytest.fixture
def namesrv(tmp_path):
    with NameServerThread(tmp_path / "namesrv") as server:
        yield {"namesrvAddr": server.address}


def acknowledged(broker, *bodies):
    for body in bodies:
        answer, _ = send(broker, body=body)
        assert answer.code == 0, answer


def bodies_of(broker):
    return [message.body for message in broker.messages("T")]


@RINGS
def test_what_the_slave_had_is_there_again(tmp_path, namesrv, caplog, ring):
    settings = MASTER | namesrv | {"rmq.tailRingBytes": ring, "maxMessageSize": "4096"}
    with BrokerThread(tmp_path / "slave", SLAVE | namesrv) as slave:
        with BrokerThread(tmp_path / "master", settings) as master:
            wait_until(lambda: context_of(slave).replication.fetcher.is_following)
            acknowledged(master, b"one", b"two")
        shutil.copytree(tmp_path / "master", tmp_path / "image")
        with BrokerThread(tmp_path / "master", settings) as master:
            wait_until(lambda: context_of(slave).replication.fetcher.is_following)
            acknowledged(master, *(b"lost %d" % number for number in range(200)))
        end = context_of(slave).store.log.end_offset
        with BrokerThread(tmp_path / "image", settings) as master:
            assert context_of(master).store.log.end_offset == end
            assert "of the log back" in caplog.text
            wait_until(lambda: context_of(slave).replication.fetcher.is_following)
            acknowledged(master, b"new")
            assert len(bodies_of(master)) == 203
            assert bodies_of(slave) == bodies_of(master)
            end = context_of(slave).store.log.end_offset
    assert log_of(tmp_path / "image", end) == log_of(tmp_path / "slave", end)


def test_a_slave_with_another_log_is_left_alone(tmp_path, namesrv, caplog):
    with BrokerThread(tmp_path / "slave", SLAVE | namesrv) as slave:
        with BrokerThread(tmp_path / "master", MASTER | namesrv) as master:
            wait_until(lambda: context_of(slave).replication.fetcher.is_following)
            acknowledged(master, *(b"lost %d" % number for number in range(20)))
        alone = QUICK | namesrv | {"brokerName": "alone"}
        with BrokerThread(tmp_path / "other", alone) as other:
            send(other, body=b"other")
        with BrokerThread(tmp_path / "other", MASTER | namesrv) as master:
            assert bodies_of(master) == [b"other"]
            assert "this broker accepts messages without" in caplog.text


def test_without_slaves_it_opens_with_a_warning(tmp_path, namesrv, caplog):
    with BrokerThread(tmp_path / "master", MASTER | namesrv) as master:
        assert context_of(master).store.durability.is_writable
    assert (
        "0 of 1 slaves are registered; this broker accepts messages without"
        in caplog.text
    )


def test_it_can_be_switched_off(tmp_path, namesrv, caplog):
    settings = MASTER | namesrv | {"rmq.recoverFromReplicas": "OFF"}
    with BrokerThread(tmp_path / "master", settings):
        pass
    assert "accepts messages without" not in caplog.text
