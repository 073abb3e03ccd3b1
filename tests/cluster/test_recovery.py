"""A SYNC_MASTER that lost the end of its log gets it from its slave before it opens."""

import shutil
from contextlib import ExitStack

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


@pytest.mark.parametrize("role", ["master", "slave"])
def test_a_damaged_record_comes_from_the_other_broker(tmp_path, namesrv, role, caplog):
    """Without a controller, and the peer is known from a file."""
    with (
        BrokerThread(tmp_path / "slave", SLAVE | namesrv) as slave,
        ExitStack() as opened,
    ):
        master = opened.enter_context(
            BrokerThread(tmp_path / "master", MASTER | namesrv)
        )
        wait_until(lambda: context_of(slave).replication.fetcher.is_following)
        acknowledged(master, *(b"kept %d" % number for number in range(50)))
        bodies, end = bodies_of(master), context_of(master).store.log.end_offset
        if role == "master":
            image = kill(opened, tmp_path, "master")
            keys = MASTER | namesrv
            with BrokerThread(image, keys) as again:
                assert bodies_of(again) == bodies
        else:
            image = tmp_path / "image"
            wait_until(lambda: (tmp_path / "slave" / "groupMembers.json").exists())
            shutil.copytree(tmp_path / "slave", image)
            damage(image)
            with BrokerThread(image, SLAVE | namesrv | {"brokerId": "2"}) as again:
                assert context_of(again).store.log.end_offset >= end
            assert log_of(image, end) == log_of(tmp_path / "slave", end)
    assert "Healed with" in caplog.text


def kill(opened, folder, name):
    """Stop a broker; return a copy of its store as a kill left it, with damage."""
    image = folder / "image"
    shutil.copytree(folder / name, image)
    opened.close()
    damage(image)
    return image


def damage(image):
    """Change a record in the middle of the last log file."""
    path = max(
        each for each in (image / "commitlog").iterdir() if any(each.read_bytes())
    )
    data = bytearray(path.read_bytes())
    used = len(data.rstrip(b"\0"))
    at = data.index(b"kept", used // 2)
    data[at] ^= 1
    path.write_bytes(bytes(data))
