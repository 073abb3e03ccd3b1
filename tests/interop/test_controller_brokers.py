"""Groups of brokers, of rmq and of Java, under controllers of Java and of rmq.

The master is killed under load, again and again: a slave takes over by itself, the old
master comes back as its slave, what was acknowledged is stored, in its order, and the
logs are equal byte by byte.
Kills: RMQ_INTEROP_ROUNDS (4).
"""

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode

from . import wire
from .conftest import prepared
from .drivers import eventually
from .interchange import LOG_FILE_SIZE, Line, java_side, rmq_side
from .processes import ROOT, free_port, serving
from .test_name_servers import java_server
from .test_replication import end_of, log_bytes
from .toolchains import JavaServers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

ROUNDS = int(os.environ.get("RMQ_INTEROP_ROUNDS", "4"))
NAME = "broker-swap"
SIDES = {"Java": java_side, "rmq": rmq_side}
TOPIC, QUEUES = "Kept", 4
SENDERS = 4


@pytest.fixture(autouse=True)
def servers():
    return prepared(JavaServers())


@contextmanager
def dledger_controller(home):
    port = free_port()
    home.mkdir()
    settings = {
        "controllerType": "DLedger", "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0", "controllerStorePath": home / "store",
    }  # fmt: skip
    yield from leading(home, f"127.0.0.1:{port}", settings)


@contextmanager
def jraft_controller(home):
    port, raft = free_port(), free_port()
    home.mkdir()
    settings = {
        "controllerType": "jRaft", "jRaftGroupId": "controllers",
        "jRaftServerId": f"127.0.0.1:{raft}", "jRaftInitConf": f"127.0.0.1:{raft}",
        "jRaftControllerRPCAddr": f"127.0.0.1:{port}",
        "controllerStorePath": home / "store",
    }  # fmt: skip
    yield from leading(home, f"127.0.0.1:{port}", settings)


def leading(home, address, settings):
    with java_server(home, "controller.ControllerStartup", settings) as process:

        def is_up():
            assert process.poll() is None, "the controller ended"
            return leads(address)

        eventually(is_up, "the controller leads", 60)
        yield address


def leads(address):
    try:
        answer = wire.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    except (OSError, AssertionError):
        return False
    return answer.ext_fields.get("isLeader") == "true"


@contextmanager
def rmq_controller(home):
    port = free_port()
    home.mkdir()
    settings = [
        f"rmq.controller.listenPort={port}",
        f"controllerStorePath={home / 'store'}",
    ]
    words = [word for each in settings for word in ("--set", each)]
    server = subprocess.Popen(
        [sys.executable, "-m", "rmq", "controller", *words], cwd=ROOT
    )
    try:
        address = f"127.0.0.1:{port}"
        eventually(lambda: leads(address), "the controller leads", 60)
        yield address
    finally:
        server.terminate()
        server.wait(20)


CONTROLLERS = {
    "DLedger": dledger_controller,
    "JRaft": jraft_controller,
    "rmq": rmq_controller,
}


class Group:
    """The brokers of a group, by name, started and killed one by one."""

    def __init__(self, folder, namesrv, controller, kinds):
        self._folder, self._kinds = folder, kinds
        self._starts = 0
        self._settings = {
            "namesrvAddr": namesrv, "enableControllerMode": "true",
            "controllerAddr": controller, "allAckInSyncStateSet": "true",
            "haSendHeartbeatInterval": 1_000, "registerNameServerPeriod": 10_000,
            "brokerIP2": "127.0.0.1", "slaveReadEnable": "true",
            "brokerName": NAME,
        }  # fmt: skip
        self._ports = {name: free_port() for name in kinds}
        self._open = {}
        self.sides = {}
        self.controller = controller
        self.namesrv = namesrv

    def store(self, name):
        return self._folder / name

    def address(self, name):
        return self.sides[name].address

    def start(self, *names):
        for name in names:
            self._starts += 1
            port = self._ports[name]
            more = self._settings | {"listenPort": port, "haListenPort": port - 1}
            opened = ExitStack()
            home = self._folder / f"home{self._starts}"
            side = SIDES[self._kinds[name]]
            self.sides[name] = opened.enter_context(
                side(self.store(name), home, **more)
            )
            self._open[name] = opened

    def kill(self, name):
        self.sides.pop(name).kill()
        self._open.pop(name).close()

    def stop(self, name):
        self.sides.pop(name)
        self._open.pop(name).close()

    def close(self):
        for name in list(self._open):
            self.stop(name)

    # -- what the controller says

    def state(self):
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        body = json.dumps([NAME]).encode()
        answer = wire.call(self.controller, code, {}, body)
        return json.loads(answer.body)["replicasInfoTable"].get(NAME, {})

    def master(self):
        """The name of the live master; None without one."""
        state = self.state()
        for each in state.get("inSyncReplicas", []):
            if each["brokerId"] == state.get("masterBrokerId") and each["alive"]:
                address = each["brokerAddress"]
                return next((n for n in self.sides if self.address(n) == address), None)
        return None

    def epoch(self):
        return self.state().get("masterEpoch", 0)

    def in_sync(self):
        return {each["brokerAddress"] for each in self.state()["inSyncReplicas"]}

    def await_set(self, *names):
        wanted = {self.address(name) for name in names}
        eventually(lambda: self.in_sync() == wanted, f"the set is {names}", 90)

    def await_master(self, *, after=0):
        eventually(
            lambda: self.epoch() > after and self.master() and self.takes(),
            "there is a master",
            90,
        )
        return self.master()

    def takes(self):
        """Whether the master takes a message."""
        name = self.master()
        return name is not None and send_one(self.address(name), "Probe") == 0


def send_one(address, topic, queue=0, body=b"probe"):
    try:
        line = Line(address)
    except OSError:
        return -1
    try:
        return send(line, topic, queue, body)
    except (OSError, AssertionError):
        return -1
    finally:
        line.close()


def send(line, topic, queue, body):
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0,
        "g": int(time.time() * 1000), "h": 0, "i": "", "j": 0, "k": "false",
    }  # fmt: skip
    return line.call(RequestCode.SEND_MESSAGE_V2, fields, body).code


class Load:
    """Senders that send numbers in their order, each to a queue of its own.

    A send that fails is repeated until it is acknowledged: so what is stored has every
    number, in the order of the first time.
    """

    def __init__(self, group):
        self._group = group
        self._stop = threading.Event()
        self.acknowledged = dict.fromkeys(range(SENDERS), 0)
        self.late = 0
        self._threads = [
            threading.Thread(target=self._send, args=(queue,))
            for queue in range(SENDERS)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def count(self):
        return sum(self.acknowledged.values())

    def await_more(self, count):
        known = self.count()
        eventually(lambda: self.count() >= known + count, f"{count} more messages", 60)

    def _send(self, queue):
        while not self._stop.is_set():
            name = self._group_master()
            if name is None:
                time.sleep(0.05)
                continue
            try:
                line = Line(self._group.address(name))
            except OSError:
                time.sleep(0.05)
                continue
            try:
                while not self._stop.is_set():
                    number = self.acknowledged[queue]
                    code = send(line, TOPIC, queue, b"%d" % number)
                    if code != ResponseCode.SUCCESS:
                        self.late += code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                        break
                    self.acknowledged[queue] += 1
            except (OSError, AssertionError):
                pass
            finally:
                line.close()

    def _group_master(self):
        try:
            return self._group.master()
        except (OSError, AssertionError, KeyError):
            return None


def assert_kept(address, load):
    """Everything acknowledged is there, in its order."""
    found = {queue: [] for queue in range(SENDERS)}
    for record in wire.pull(address, TOPIC, queues=QUEUES):
        found[record.queue_id].append(int(record.body))
    repeats = 0
    for queue, numbers in found.items():
        first = list(dict.fromkeys(numbers))
        repeats += len(numbers) - len(first)
        assert first[: load.acknowledged[queue]] == list(
            range(load.acknowledged[queue])
        ), f"queue {queue}"
    return repeats


@pytest.fixture
def group(tmp_path, controller, kinds):
    with (
        serving("namesrv", "--set", "listenPort=0") as namesrv,
        CONTROLLERS[controller](tmp_path / "controller") as address,
    ):
        group = Group(tmp_path, namesrv.namesrv, address, kinds)
        try:
            yield group
        finally:
            group.close()


def kinds_of(*kinds):
    return {f"b{number}": kind for number, kind in enumerate(kinds)}


GROUPS = {
    "rmq+rmq": kinds_of("rmq", "rmq"),
    "rmq+Java": kinds_of("rmq", "Java"),
    "rmq+rmq+rmq": kinds_of("rmq", "rmq", "rmq"),
}


@pytest.mark.parametrize("kinds", GROUPS.values(), ids=GROUPS)
@pytest.mark.parametrize("controller", CONTROLLERS)
def test_a_killed_master_is_replaced(tmp_path, group, controller, kinds):
    names = sorted(kinds)
    group.start(names[0])
    group.await_master()
    for name in names[1:]:
        group.start(name)
    group.await_set(*names)
    times = []
    with Load(group) as load:
        load.await_more(200)
        for _ in range(ROUNDS):
            master, epoch = group.master(), group.epoch()
            group.kill(master)
            killed = time.monotonic()
            group.await_master(after=epoch)
            load.await_more(1)
            times.append(time.monotonic() - killed)
            group.start(master)
            group.await_set(*names)
            load.await_more(200)
    ends = [end_of(group.address(name)) for name in names]
    eventually(
        lambda: len({end_of(group.address(name)) for name in names}) == 1,
        "the slaves have caught up",
        60,
    )
    repeats = assert_kept(group.address(group.master()), load)
    end = max(ends)
    for name in names:
        group.stop(name)
    logs = {log_bytes(group.store(name), end) for name in names}
    assert len(logs) == 1
    print(
        f"{controller}, {'+'.join(kinds.values())}: {load.count()} acknowledged, "
        f"{ROUNDS} kills, {repeats} repeats, {load.late} late; senders went on after "
        + ", ".join(f"{each:.1f}" for each in times)
        + f" s; {end} bytes equal"
    )
    assert end % LOG_FILE_SIZE or end
