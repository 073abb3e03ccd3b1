"""Peers and slaves that must not follow, at whole brokers.

Each gets one sentence: in the log, in the answer to 907 and in `rmq doctor`.  Meanwhile
the good pair goes on, nothing acknowledged is lost, and nobody spins.
"""

import json
import shutil
import socket
import time
from contextlib import ExitStack

import pytest

from rmq.cli.doctor.group_checks import check_groups
from rmq.client.admin import AdminClient
from rmq.outgoing.identity import Identity
from rmq.protocol.codes import RequestCode
from rmq.testing import BrokerThread, ClusterThreads, NameServerThread
from tests.cluster.test_pair import QUICK, SYNC, ask, context_of, send
from tests.history import History, Place
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

STRANGER = "127.0.0.2"
QUIET_S = 0.5
MOST_CPU_S = 0.3
"""Of everything in this process in that time: two idle brokers take some hundredths."""


def report(peer, offset):
    peer.sendall(offset.to_bytes(8, "big", signed=True))


def is_silent(peer, end):
    """Say nothing."""


def dribbles(peer, end):
    for byte in end.to_bytes(8, "big")[:5]:
        peer.sendall(bytes([byte]))
        time.sleep(0.01)


def reports_beyond_the_end(peer, end):
    report(peer, end + 1)


def reports_what_it_was_not_sent(peer, end):
    report(peer, end)
    peer.recv(12)
    report(peer, 1 << 40)


def sinks(peer, end):
    report(peer, end)
    peer.recv(12)
    report(peer, 1)


def sends_garbage(peer, end):
    peer.sendall(b"\xff" * (4 << 20))


ATTACKS = [
    (is_silent, "silent for"),
    (dribbles, "silent for"),
    (reports_beyond_the_end, "the log of this broker at"),
    (
        reports_what_it_was_not_sent,
        f"the slave reported {1 << 40}, but this broker sent",
    ),
    (sinks, "it reported 1 after"),
    (sends_garbage, "the slave reported the offset -1"),
]


def attack(broker, how):
    """One peer from another address; it is gone when this returns."""
    store = context_of(broker).store
    port = int(context_of(broker).name_servers.ha_address.rpartition(":")[2])
    with socket.create_connection(
        ("127.0.0.1", port), timeout=10, source_address=(STRANGER, 0)
    ) as peer:
        try:
            how(peer, store.log.end_offset)
            while peer.recv(65_536):
                pass
        except OSError:
            pass


def send_some(broker, history, first, count=10):
    for number in range(first, first + count):
        history.invoke(number)
        answer, _ = send(broker, body=b"%d" % number)
        place = None
        if answer.code == 0:
            fields = answer.ext_fields
            place = Place("T", int(fields["queueId"]), int(fields["queueOffset"]))
        history.answer(number, answer.code, place)
        assert answer.code == 0, answer.remark


def reads_of(broker):
    return [
        (int(message.body), Place("T", message.queue_id, message.queue_offset))
        for message in broker.messages("T")
    ]


def ha_status(broker):
    return json.loads(ask(broker, RequestCode.GET_BROKER_HA_STATUS).body)


def doctor_says(name_server):
    with AdminClient([name_server], Identity()) as admin:
        found = list(check_groups(admin, admin.brokers()))
    return [each.text for each in found if each.is_problem]


def assert_nobody_spins():
    began = time.process_time()
    time.sleep(QUIET_S)
    assert time.process_time() - began < MOST_CPU_S


@pytest.mark.parametrize(
    ("how", "sentence"), ATTACKS, ids=[how.__name__ for how, _ in ATTACKS]
)
def test_a_pair_goes_on_beside_a_bad_peer(tmp_path, caplog, how, sentence):
    settings = SYNC | {
        "rmq.haPeers": STRANGER, "haHousekeepingInterval": "700",
        "slaveTimeout": "3000",
    }  # fmt: skip
    history = History()
    with ClusterThreads(tmp_path, settings) as cluster:
        send_some(cluster.master, history, 0)
        for number in range(1, 4):
            attack(cluster.master, how)
            send_some(cluster.master, history, 10 * number)
        cluster.catch_up()
        wait_until(lambda: len(ha_status(cluster.master)["refusals"]) == 3)
        said = ha_status(cluster.master)["refusals"]
        assert all(sentence in each for each in said), said
        [problem] = doctor_says(cluster.master.name_server)
        assert said[-1] in problem
        assert history.faults(reads_of(cluster.slave)) == []
        assert_nobody_spins()
    assert sentence in caplog.text


def test_a_stranger_gets_nothing(tmp_path, caplog):
    history, sentence = History(), "no other broker of this group is registered with"
    with ClusterThreads(tmp_path, SYNC | {"slaveTimeout": "3000"}) as cluster:
        send_some(cluster.master, history, 0)
        for _ in range(30):
            attack(cluster.master, reports_beyond_the_end)
        send_some(cluster.master, history, 10)
        said = ha_status(cluster.master)["refusals"]
        assert all(sentence in each for each in said), said
        assert len(said) < 30
        [problem] = doctor_says(cluster.master.name_server)
        assert sentence in problem
        assert history.faults(reads_of(cluster.slave)) == []
        assert_nobody_spins()
    assert 1 <= caplog.text.count(sentence) < 30


# -- slaves that must not follow


FILE_SIZE = 1 << 16
SMALL = QUICK | {"mappedFileSizeCommitLog": str(FILE_SIZE), "maxMessageSize": "60000"}


class Group:
    """A master and a slave in folders of their own, with one name server."""

    def __init__(self, folder, namesrv):
        self.folder = folder
        self.namesrv = namesrv
        self.history = History()
        self._sent = 0

    def master(self, name="master", **more):
        settings = SMALL | {"namesrvAddr": self.namesrv} | more
        return BrokerThread(self.folder / name, settings)

    def slave(self, name="slave", **more):
        more = {
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "slaveReadEnable": "true",
        } | more
        return self.master(name, **more)

    def send(self, broker, count=10, size=0):
        for number in range(self._sent, self._sent + count):
            answer, _ = send(broker, body=b"%d" % number + b" " * size)
            assert answer.code in (0, 12), answer.remark
        self._sent += count

    def run(self, count=10, size=0):
        """Both run until the slave has some more messages."""
        with self.master() as master, self.slave() as slave:
            self.send(master, count, size)
            end = context_of(master).store.log.end_offset
            wait_until(lambda: context_of(slave).store.log.end_offset == end)


def is_ahead(group):
    group.run()
    shutil.copytree(group.folder / "master", group.folder / "image")
    group.run()
    shutil.rmtree(group.folder / "master")
    (group.folder / "image").rename(group.folder / "master")


def is_forked(group):
    group.run()
    with group.master() as alone:
        group.send(alone, 5)
    with group.master("slave") as alone:
        group.send(alone, 5)


def is_too_old(group):
    group.run()
    with group.master() as alone:
        group.send(alone, 300, 1_000)
    for path in sorted((group.folder / "master" / "commitlog").iterdir())[:2]:
        path.unlink()


def is_of_another_group(group):
    with group.master("slave") as other:
        group.send(other)
    with group.master() as master:
        group.send(master, 20)


def has_other_files(group):
    with group.master() as master:
        group.send(master, 100, 1_000)


TROUBLES = [
    (is_ahead, {}, "has messages that the master lost"),
    (is_forked, {}, "the logs differ from offset"),
    (is_too_old, {}, "before the master's oldest message at"),
    (is_of_another_group, {}, "no record of the master's log"),
    (
        has_other_files,
        {"mappedFileSizeCommitLog": str(2 * FILE_SIZE)},
        "set mappedFileSizeCommitLog to",
    ),
]


@pytest.mark.parametrize(
    ("trouble", "keys", "sentence"),
    TROUBLES,
    ids=[trouble.__name__ for trouble, _, _ in TROUBLES],
)
def test_a_slave_that_must_not_follow_says_why(
    tmp_path, caplog, trouble, keys, sentence
):
    with NameServerThread(tmp_path / "namesrv") as namesrv, ExitStack() as opened:
        group = Group(tmp_path, namesrv.address)
        trouble(group)
        sync = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2",
                "rmq.recoverFromReplicas": "OFF", "slaveTimeout": "200"}  # fmt: skip
        master = opened.enter_context(group.master(**sync))
        caplog.clear()
        slave = opened.enter_context(group.slave(**keys))
        link = context_of(slave).replication.fetcher
        wait_until(lambda: sentence in link.state)
        before = context_of(slave).store.log.end_offset
        assert_nobody_spins()
        assert sentence in ha_status(slave)["haClientRuntimeInfo"]["notFollowing"]
        assert any(sentence in text for text in doctor_says(namesrv.address))
        answer, _ = send(master, body=b"nobody but the master has this")
        assert answer.code == 12, "a slave that does not follow acknowledged"
        assert context_of(slave).store.log.end_offset == before
    said = [each for each in caplog.messages if sentence in each]
    assert len(said) == 1, said


def test_a_slave_of_two_masters_keeps_its_log(tmp_path, caplog):
    sentence = "no record of the master's log"
    with NameServerThread(tmp_path / "namesrv") as namesrv, ExitStack() as opened:
        group = Group(tmp_path, namesrv.address)
        group.run()
        opened.enter_context(group.master())
        other = opened.enter_context(group.master("other"))
        group.send(other, 30)
        slave = opened.enter_context(group.slave())  # the other one registered last
        end = context_of(slave).store.log.end_offset
        link = context_of(slave).replication.fetcher
        wait_until(lambda: sentence in link.state)
        assert_nobody_spins()
        assert sentence in ha_status(slave)["haClientRuntimeInfo"]["notFollowing"]
        assert any(sentence in text for text in doctor_says(namesrv.address))
        assert context_of(slave).store.log.end_offset == end
        wait_until(lambda: len(slave.messages("T")) == 10)  # its queues follow its log
    assert sum(sentence in each for each in caplog.messages) == 1
