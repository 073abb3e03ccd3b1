"""rmq's controllers, with unmodified brokers of Java.

A group of two brokers in controller mode: its master is killed under load, again and
again, and comes back as slave; everything acknowledged is on the next master. The state
of the controllers is in a file, or in three members of etcd of which one is killed and
one stopped.
"""

import base64
import itertools
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from tests.history import History, Kind, Place
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .etcd import Etcd
from .interchange import SETTINGS, is_served, on_host
from .processes import free_port, serving
from .test_name_servers import java_server
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1800)]

NAME = "broker-swap"
TOPIC = "Failover"
COUNT = {"file": 1, "etcd": 2}
AFTER_HEARTBEAT_S = 1.5
"""After this time a broker has told the controller that its log is whole."""
KILLS = int(os.environ.get("RMQ_INTEROP_ROUNDS", "3"))
MODE = {
    "enableControllerMode": "true", "allAckInSyncStateSet": "true",
    "registerNameServerPeriod": 10_000, "brokerIP2": "127.0.0.1",
    "haSendHeartbeatInterval": 1_000, "slaveReadEnable": "true",
}  # fmt: skip


@pytest.fixture(autouse=True)
def servers():
    return prepared(JavaServers())


@contextmanager
def rmq_controllers(folder, engine, count=1, **keys):
    """Controllers of rmq on one engine; their processes."""
    with ExitStack() as stack:
        settings = [f"rmq.controllerEngine={engine}", f"controllerStorePath={folder}"]
        etcd = None
        if engine == "etcd":
            if Etcd.is_missing():
                pytest.skip("not run: no etcd on this machine")
            folder.mkdir(exist_ok=True)
            etcd = stack.enter_context(Etcd(folder, **keys))
            settings.append(f"rmq.etcdEndpoints={','.join(etcd.endpoints)}")
        processes = [stack.enter_context(controller(*settings)) for _ in range(count)]
        yield processes, etcd


def controller(*settings):
    arguments = ["controller", "--set", f"rmq.controller.listenPort={free_port()}"]
    for setting in settings:
        arguments += ["--set", setting]
    return serving(*arguments)


class Brokers:
    """Brokers of Java in a group, started, stopped and killed one by one."""

    def __init__(self, folder, namesrv, controllers):
        self._folder, self._starts, self._open = folder, itertools.count(), {}
        self._settings = SETTINGS | on_host("127.0.0.1") | MODE | {
            "namesrvAddr": namesrv, "controllerAddr": ";".join(controllers),
        }  # fmt: skip
        self.processes, self.addresses = {}, {}

    def start(self, name):
        """Each time at another port, as on another machine."""
        port, home = free_port(), self._folder / f"home{next(self._starts)}"
        settings = self._settings | {
            "listenPort": port, "haListenPort": port - 1,
            "storePathRootDir": self._folder / name,
        }  # fmt: skip
        opened = self._open[name] = ExitStack()
        server = java_server(home, "broker.BrokerStartup", settings)
        process = self.processes[name] = opened.enter_context(server)
        address = self.addresses[name] = f"127.0.0.1:{port}"
        wait_until(lambda: is_served(address, process), "Java serves", 90)

    def kill(self, name):
        self.processes[name].kill()
        self.processes.pop(name).wait()
        self._open.pop(name).close()

    def pause(self, name):
        """It is cut off from everybody, and lives."""
        self.processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name):
        self.processes[name].send_signal(signal.SIGCONT)

    def named(self, address):
        return next(name for name, each in self.addresses.items() if each == address)

    def close(self):
        for name, opened in self._open.items():
            self.resume(name)
            opened.close()


def metadata(controllers):
    for address in controllers:
        try:
            answer = wire.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        except (OSError, AssertionError):
            continue
        if leader := answer.ext_fields.get("controllerLeaderAddress"):
            return leader
    return None


def replicas(controllers):
    """What the controller that leads knows of the group."""
    leader = metadata(controllers)
    if leader is None:
        return {}
    code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
    try:
        answer = wire.call(leader, code, body=json.dumps([NAME]).encode())
    except (OSError, AssertionError):
        return {}
    if answer.code != ResponseCode.SUCCESS:
        return {}
    return json.loads(answer.body)["replicasInfoTable"].get(NAME, {})


def in_sync(controllers):
    found = replicas(controllers).get("inSyncReplicas", [])
    return sorted(each["brokerId"] for each in found if each["alive"])


def send(address, number, history):
    """Whether the broker acknowledged a message."""
    fields = {
        "producerGroup": "P", "topic": TOPIC, "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 1, "queueId": 0, "sysFlag": 0, "flag": 0,
        "bornTimestamp": int(time.time() * 1000), "properties": "",
        "reconsumeTimes": 0,
    }  # fmt: skip
    history.invoke(number)
    try:
        answer = wire.call(address, RequestCode.SEND_MESSAGE, fields, b"%d" % number)
    except (OSError, AssertionError):
        return False
    place = None
    if answer.code == ResponseCode.SUCCESS:
        place = Place(TOPIC, 0, int(answer.ext_fields["queueOffset"]))
    history.answer(number, answer.code, place)
    return place is not None


class Sender(threading.Thread):
    """Sends numbers to whatever the controllers call the master, until stopped."""

    def __init__(self, controllers):
        super().__init__(daemon=True)
        self.history = History()
        self.acknowledged = []
        self._controllers, self._stopped = controllers, threading.Event()
        self._master = None

    def run(self):
        for number in itertools.count():
            if self._stopped.is_set():
                return
            if self._master and send(self._master, number, self.history):
                self.acknowledged.append((number, time.monotonic()))
            else:
                self._master = replicas(self._controllers).get("masterAddress")

    def wait_for(self, count):
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= wanted, f"{count} more", 60)

    def longest_gap_since(self, moment):
        """The longest time without an acknowledged message."""
        whens = [moment, *(when for _, when in self.acknowledged if when > moment)]
        return max(later - when for when, later in itertools.pairwise(whens))

    def stop(self):
        self._stopped.set()
        self.join(30)
        assert not self.is_alive()
        return self.history


def assert_kept(brokers, history):
    """Both have everything acknowledged, where the answer said, and nothing else."""
    for name, address in brokers.addresses.items():
        wait_until(  # a slave shows its end a moment later
            lambda at=address: Kind.LOST not in kinds(history, at), f"all is on {name}"
        )
        assert not history.faults(reads(address))


def kinds(history, address):
    return {fault.kind for fault in history.faults(reads(address))}


def reads(address):
    return [
        (int(each.body), Place(TOPIC, each.queue_id, each.queue_offset))
        for each in wire.pull(address, TOPIC, queues=1)
    ]


@contextmanager
def running_group(folder, engine):
    with (
        rmq_controllers(
            folder / "state", engine, count=2 if engine == "etcd" else 1
        ) as (
            processes,
            etcd,
        ),
        serving("namesrv", "--set", "listenPort=0") as names,
    ):
        addresses = [each.controller for each in processes]
        brokers = Brokers(folder, names.namesrv, addresses)
        try:
            for name in ("a", "b"):
                brokers.start(name)
            wait_until(lambda: in_sync(addresses) == [1, 2], "both are in sync", 120)
            yield brokers, addresses, processes, etcd
        finally:
            brokers.close()


@pytest.mark.parametrize("engine", ["file", "etcd"])
def test_masters_are_killed_under_load(tmp_path, engine):
    with running_group(tmp_path, engine) as (brokers, controllers, _, etcd):
        wire.make_topic(replicas(controllers)["masterAddress"], TOPIC, 1)
        sender = Sender(controllers)
        sender.start()
        for number in range(KILLS):
            wait_until(lambda: in_sync(controllers) == [1, 2], "both are in sync", 120)
            time.sleep(AFTER_HEARTBEAT_S)
            sender.wait_for(100)
            if etcd is not None:
                disturb(etcd, number)
            before = replicas(controllers)
            name = brokers.named(before["masterAddress"])
            killed = time.monotonic()
            brokers.kill(name)
            sender.wait_for(10)
            print(f"{engine}: no send for {sender.longest_gap_since(killed):.2f} s")
            after = replicas(controllers)
            assert after["masterBrokerId"] != before["masterBrokerId"]
            assert after["masterEpoch"] == before["masterEpoch"] + 1
            brokers.start(name)
        wait_until(lambda: in_sync(controllers) == [1, 2], "both are in sync", 120)
        assert_kept(brokers, sender.stop())


def test_a_master_that_is_cut_off_under_load(tmp_path):
    with running_group(tmp_path, "file") as (brokers, controllers, _, _):
        wire.make_topic(replicas(controllers)["masterAddress"], TOPIC, 1)
        sender = Sender(controllers)
        sender.start()
        sender.wait_for(100)
        before = replicas(controllers)
        name = brokers.named(before["masterAddress"])
        cut = time.monotonic()
        brokers.pause(name)
        epoch = before["masterEpoch"] + 1
        wait_until(
            lambda: replicas(controllers).get("masterEpoch") == epoch, "a master"
        )
        print(f"another master after {time.monotonic() - cut:.2f} s")
        sender.wait_for(100)
        brokers.resume(name)
        wait_until(lambda: in_sync(controllers) == [1, 2], "both are in sync", 120)
        assert replicas(controllers)["masterEpoch"] == epoch
        assert_kept(brokers, sender.stop())


def disturb(etcd, number):
    """Kill a member, then stop the one that leads, then let all be again."""
    if number % 3 == 0:
        etcd.kill("m0")
    elif number % 3 == 1:
        etcd.start("m0")
        wait_until(etcd.leader, "etcd has a leader")
        etcd.paused = etcd.leader()
        etcd.pause(etcd.paused)
    else:
        etcd.resume(etcd.paused)


def test_the_leading_controller_is_killed_and_then_a_master(tmp_path):
    with running_group(tmp_path, "etcd") as (brokers, controllers, processes, _):
        leader = metadata(controllers)
        killed = time.monotonic()
        next(each for each in processes if each.controller == leader).kill()
        wait_until(
            lambda: metadata(controllers) not in (None, leader), "another one leads", 30
        )
        print(f"another controller leads after {time.monotonic() - killed:.2f} s")
        before = replicas(controllers)
        assert before["masterBrokerId"] is not None
        brokers.kill(brokers.named(before["masterAddress"]))
        wait_until(
            lambda: (
                replicas(controllers).get("masterEpoch") == before["masterEpoch"] + 1
            ),
            "a new master",
            60,
        )
        assert replicas(controllers)["masterBrokerId"] != before["masterBrokerId"]


# -- controllers that believe, and an old copy of etcd: with brokers that only ask


def ask(address, code, body=b"", **fields):
    return wire.call(
        address, code, {"clusterName": "C", "brokerName": NAME} | fields, body
    )


def registered(controller, *ids):
    """Brokers of a group that have registered and asked for a master."""
    for broker_id in ids:
        address = f"127.0.0.1:{broker_id}"
        for code, fields in (
            (
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                {"appliedBrokerId": broker_id, "registerCheckCode": f"{address};1"},
            ),
            (
                RequestCode.CONTROLLER_REGISTER_BROKER,
                {"brokerId": broker_id, "brokerAddress": address},
            ),
        ):
            answer = ask(controller, code, **fields)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    elect(controller, ids[0])


def elect(controller, broker_id, *, wanted=False):
    fields = {"brokerId": broker_id, "designateElect": str(wanted).lower()}
    return ask(controller, RequestCode.CONTROLLER_ELECT_MASTER, **fields)


def alter(controller, ids, master_id, epoch, set_epoch):
    body = json.dumps({"syncStateSet": ids, "syncStateSetEpoch": set_epoch}).encode()
    fields = {"masterBrokerId": master_id, "masterEpoch": epoch}
    code = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    return ask(controller, code, body, **fields)


class Beating:
    """Heartbeats of brokers, each on a connection that stays open."""

    def __init__(self, controllers, ids, epoch):
        self._stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(address, broker_id, epoch))
            for address in controllers
            for broker_id in ids
        ]

    def _run(self, address, broker_id, epoch):
        host, _, port = address.rpartition(":")
        fields = {
            "clusterName": "C", "brokerName": NAME, "epoch": str(epoch),
            "brokerId": str(broker_id), "brokerAddr": f"127.0.0.1:{broker_id}",
            "maxOffset": "100", "heartbeatTimeoutMills": "3000",
        }  # fmt: skip
        code = RequestCode.BROKER_HEARTBEAT
        with socket.create_connection((host, int(port))) as stream:
            while not self._stopped.wait(0.3):
                stream.sendall(encode(Command(code, fields, b"", version=513)))

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self._stopped.set()
        for thread in self._threads:
            thread.join()


def test_a_leader_that_was_stopped_believes_and_changes_nothing(tmp_path):
    with rmq_controllers(tmp_path / "state", "etcd", 2) as (processes, _):
        addresses = [each.controller for each in processes]
        wait_until(lambda: metadata(addresses), "one leads")
        old = metadata(addresses)
        registered(old, 1, 2)
        process = next(each for each in processes if each.controller == old)
        other = next(each for each in addresses if each != old)
        with Beating(addresses, [1, 2], 1):
            assert alter(old, [1, 2], 1, 1, 1).code == ResponseCode.SUCCESS
            process.pause()
            wait_until(lambda: metadata([other]) == other, "the other one leads", 30)
            assert elect(other, 2, wanted=True).ext_fields["masterEpoch"] == "2"
            process.resume()
            for _ in range(20):  # from its first moment on
                answer = alter(old, [1], 1, 1, 2)
                assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
                answer = elect(old, 1, wanted=True)
                assert answer.code == ResponseCode.CONTROLLER_NOT_LEADER
            wait_until(lambda: metadata([old]) == other, "it knows who leads")
            found = replicas(addresses)
            assert (found["masterBrokerId"], found["masterEpoch"]) == (2, 2)


def test_a_full_etcd_changes_nothing_and_its_leader_goes_on(tmp_path):
    quota = 1 << 20
    with rmq_controllers(tmp_path / "state", "etcd", quota=quota) as (processes, etcd):
        (address,) = (each.controller for each in processes)
        wait_until(lambda: metadata([address]), "it leads")
        registered(address, 1, 2)
        fill(etcd, quota)
        with Beating([address], [1, 2], 1):
            refused = alter(address, [1, 2], 1, 1, 1)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert "database space exceeded" in refused.remark
            time.sleep(8)
            found = replicas([address])
            assert (found["masterBrokerId"], found["syncStateSetEpoch"]) == (1, 1)


def fill(etcd, size):
    """Write until etcd takes no more."""
    value = base64.b64encode(bytes(100_000)).decode()
    for number in range(10 * size // 100_000):
        key = base64.b64encode(b"/other/%d" % number).decode()
        body = json.dumps({"key": key, "value": value}).encode()
        try:
            urllib.request.urlopen(f"{etcd.endpoints[0]}/v3/kv/put", body, 5).close()
        except urllib.error.HTTPError as error:
            error.close()
            return
    raise AssertionError("etcd takes everything")


def test_etcd_is_restored_from_an_old_copy(tmp_path):
    with rmq_controllers(tmp_path / "state", "etcd", 1) as (processes, etcd):
        (address,) = (each.controller for each in processes)
        wait_until(lambda: metadata([address]), "it leads")
        registered(address, 1, 2)
        with Beating([address], [1, 2], 1):
            assert alter(address, [1, 2], 1, 1, 1).code == ResponseCode.SUCCESS
            etcd.save(tmp_path / "copy")
            assert elect(address, 2, wanted=True).ext_fields["masterEpoch"] == "2"
        etcd.restore(tmp_path / "copy")
        wait_until(lambda: metadata([address]), "it leads again", 30)
        assert replicas([address])["masterEpoch"] == 1
        with Beating([address], [2], 2):  # its master of then is dead
            time.sleep(12)
            found = replicas([address])
            assert (found["masterBrokerId"], found["masterEpoch"]) == (1, 1)
            refused = elect(address, 2)
            assert refused.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
            assert "state is an old copy" in refused.remark
            named = elect(address, 2, wanted=True)
            assert named.ext_fields["masterEpoch"] == "3"
