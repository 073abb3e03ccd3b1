"""Groups of brokers under controllers, with a load and its judge.

Brokers are of rmq and of Java, controllers are Java's of both kinds and rmq's, on a
file or on three members of etcd.  Each has a place: this machine, or one of a network.
"""

import json
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from subprocess import PIPE, Popen

from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from tests.history import History, Place
from tests.waiting import wait_until

from . import wire
from .etcd import Etcd
from .interchange import Line, java_side, rmq_side
from .machines import HERE
from .processes import free_port, serving
from .test_name_servers import java_server
from .toolchains import QuickJavaServers, plain_environment

NAME = "broker-swap"
JAVA = QuickJavaServers()
SIDES = {"Java": partial(java_side, servers=JAVA), "rmq": rmq_side}
TOPIC, QUEUES = "Kept", 4
SENDERS = 16
"""Threads of a client's driver; each waits for its answer."""

ATTEMPTS = 3
"""How often an SDK of 5.x sends a message before it reports an error."""

PAUSE_S = 0.01
"""Between two messages of a sender: a load, and logs that a test can read."""

TIMEOUT_S = 3
"""What a client waits for an answer by default."""


# -- controllers: a context with their addresses, and etcd if it is below


@contextmanager
def dledger_controller(home, machines=(HERE,)):
    port = free_port()
    address = f"{machines[0].host}:{port}"
    settings = {
        "controllerType": "DLedger", "controllerDLegerGroup": "controllers",
        "controllerDLegerPeers": f"n0-{address}",
        "controllerDLegerSelfId": "n0", "controllerStorePath": home / "store",
    }  # fmt: skip
    with leading(home, address, settings, machines[0]):
        yield [address], None


@contextmanager
def jraft_controller(home, machines=(HERE,)):
    host = machines[0].host
    address, raft = f"{host}:{free_port()}", f"{host}:{free_port()}"
    settings = {
        "controllerType": "jRaft", "jRaftGroupId": "controllers",
        "jRaftServerId": raft, "jRaftInitConf": raft,
        "jRaftControllerRPCAddr": address, "controllerStorePath": home / "store",
    }  # fmt: skip
    with leading(home, address, settings, machines[0]):
        yield [address], None


@contextmanager
def leading(home, address, settings, machine):
    main = "controller.ControllerStartup"
    with java_server(home, main, settings, JAVA, machine.inside) as process:

        def is_up():
            assert process.poll() is None, "the controller ended"
            return leads(address)

        wait_until(is_up, "the controller leads", 60)
        yield


def leads(address):
    try:
        answer = wire.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
    except (OSError, AssertionError):
        return False
    return answer.ext_fields.get("isLeader") == "true"


@contextmanager
def rmq_controller(home, machines=(HERE,)):
    settings = f"controllerStorePath={home / 'store'}"
    with serving(*arguments(machines[0], settings), inside=machines[0].inside) as one:
        wait_until(lambda: leads(one.controller), "the controller leads", 60)
        yield [one.controller], None


@contextmanager
def etcd_controllers(home, machines=(HERE,) * 3):
    """A member of etcd and a controller on each machine."""
    home.mkdir(parents=True)
    with ExitStack() as stack:
        etcd = stack.enter_context(Etcd(home, machines))
        keys = (
            "rmq.controllerEngine=etcd",
            f"rmq.etcdEndpoints={','.join(etcd.endpoints)}",
        )
        addresses = [
            stack.enter_context(
                serving(*arguments(each, *keys), inside=each.inside)
            ).controller
            for each in machines
        ]
        wait_until(lambda: any(map(leads, addresses)), "a controller leads", 60)
        yield addresses, etcd


def arguments(machine, *settings):
    found = ["controller", "--log-level", "warning"]
    port = free_port()
    for setting in (
        f"bindAddress={machine.bound}",
        f"rmq.controller.listenPort={port}",
        f"rmq.controller.address={machine.host}:{port}",
        *settings,
    ):
        found += ["--set", setting]
    return found


CONTROLLERS = {
    "DLedger": dledger_controller,
    "JRaft": jraft_controller,
    "rmq": rmq_controller,
    "rmq on etcd": etcd_controllers,
}


class Group:
    """The brokers of a group, by name, started and killed one by one."""

    def __init__(self, folder, namesrv, controllers, kinds, machines=None):
        """`kinds` and `machines` by name."""
        self._folder, self._kinds = folder, kinds
        self._machines = machines or dict.fromkeys(kinds, HERE)
        self._starts = 0
        self.namesrv = namesrv
        self._settings = {
            "namesrvAddr": namesrv, "enableControllerMode": "true",
            "controllerAddr": ";".join(controllers), "allAckInSyncStateSet": "true",
            "haSendHeartbeatInterval": 1_000, "registerNameServerPeriod": 10_000,
            "slaveReadEnable": "true", "brokerName": NAME,
        }  # fmt: skip
        self._ports = {name: free_port() for name in kinds}
        self._open = {}
        self.sides = {}
        self.controllers = controllers

    def add_settings(self, **more):
        """Set keys of all brokers that start from now on."""
        self._settings |= more

    def lines(self, name):
        """What a broker of rmq has logged since its last start."""
        return self.sides[name].lines

    def store(self, name):
        return self._folder / name

    def address(self, name):
        return self.sides[name].address

    def start(self, *names):
        for name in names:
            self._starts += 1
            machine, more = self._machines[name], self._settings | self.own_keys(name)
            opened = ExitStack()
            home = self._folder / f"home{self._starts}"
            side = SIDES[self._kinds[name]](
                self.store(name), home, machine.host, inside=machine.inside, **more
            )
            self.sides[name] = opened.enter_context(side)
            self._open[name] = opened

    def own_keys(self, name):
        """The keys of one broker."""
        port, machine = self._ports[name], self._machines[name]
        return {
            "listenPort": port, "haListenPort": port - 1,
            "brokerIP2": machine.host, "bindAddress": machine.bound,
        }  # fmt: skip

    def start_all(self):
        """The first one is the first master; all are in the set."""
        first, *others = self._kinds
        self.start(first)
        self.await_master()
        self.start(*others)
        self.await_all()

    def kill(self, name):
        self.sides.pop(name).kill()
        self._open.pop(name).close()

    def close(self):
        """Stop them in order, all at once: Java's brokers take 10 s."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(self.stop, list(self._open)))

    def stop(self, name):
        self.sides.pop(name)
        self._open.pop(name).close()

    # -- what the controller says

    def state(self):
        """The group as the controller that leads knows it; empty if none answers."""
        code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        body = json.dumps([NAME]).encode()
        for controller in self.controllers:
            try:
                answer = wire.call(controller, code, {}, body, timeout_s=TIMEOUT_S)
            except (OSError, AssertionError):
                continue
            if answer.code == ResponseCode.SUCCESS:
                return json.loads(answer.body)["replicasInfoTable"].get(NAME, {})
        return {}

    def master(self):
        """The name of the live master; None without one."""
        state = self.state()
        for each in state.get("inSyncReplicas", []):
            if each["brokerId"] == state.get("masterBrokerId") and each["alive"]:
                address = each["brokerAddress"]
                for name, side in list(self.sides.items()):
                    if side.address == address:
                        return name
        return None

    def epoch(self):
        return self.state().get("masterEpoch", 0)

    def in_sync(self):
        return {
            each["brokerAddress"] for each in self.state().get("inSyncReplicas", [])
        }

    def is_dead(self, address):
        """Whether the controller knows a broker, outside of the set, to be dead."""
        others = self.state().get("notInSyncReplicas", [])
        return any(
            each["brokerAddress"] == address and not each["alive"] for each in others
        )

    def await_all(self):
        wanted = {self.address(name) for name in self._kinds}
        wait_until(lambda: self.in_sync() == wanted, "all are in the set", 90)

    def await_master(self, *, after=0):
        wait_until(
            lambda: self.epoch() > after and self.master() and self.takes(),
            "there is a master",
            90,
        )
        return self.master()

    def takes(self):
        """Whether the master takes a message."""
        name = self.master()
        try:
            return name is not None and send_one(self.address(name), "Probe") == 0
        except KeyError:
            return False


def send_one(address, topic, queue=0, body=b"probe"):
    try:
        line = Line(address, TIMEOUT_S)
    except OSError:
        return -1
    try:
        return send(line, topic, queue, body).code
    except (OSError, AssertionError):
        return -1
    finally:
        line.close()


def send(line, topic, queue, body, key="", *, tags=""):
    """Send as clients do: else the key would be as long as the broker's own address."""
    key = f"UNIQ_KEY\x01{key or uuid.uuid4().hex.upper()}\x02"
    if tags:
        key += f"TAGS\x01{tags}\x02"
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": QUEUES, "e": queue, "f": 0,
        "g": int(time.time() * 1000), "h": 0, "i": key, "j": 0, "k": "false",
    }  # fmt: skip
    return line.call(RequestCode.SEND_MESSAGE_V2, fields, body)


# -- load


class Load:
    """For each queue a sender of numbers in their order, and one reader of all.

    A send that fails is repeated until it is acknowledged.  Everybody asks the
    controllers for the master when it does not serve, as clients ask for routes, and
    believes the last answer if there is none.  `is_once`: it is repeated with its key,
    without pauses, and must be stored once.
    """

    def __init__(self, group, *, is_once=False):
        self._group, self.is_once = group, is_once
        self._no_more, self._stop = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self.history = History()
        self.acknowledged = dict.fromkeys(range(QUEUES), 0)
        self.reads = []
        self.received = Counter()
        """Messages of a consumer, if there is one besides the reader."""

        self._tried = {}
        self.failed = 0
        """Sends without an acknowledgement."""
        self._threads = [
            threading.Thread(
                target=self._converse, args=(self._send, queue, self._no_more)
            )
            for queue in range(QUEUES)
        ]
        self._reader = threading.Thread(
            target=self._converse, args=(self._read, {}, self._stop)
        )

    def __enter__(self):
        for thread in (*self._threads, self._reader):
            thread.start()
        return self

    def __exit__(self, *_):
        self._end_sends()
        self._stop.set()
        for thread in (*self._threads, self._reader):
            thread.join(30)

    def count(self):
        return sum(self.acknowledged.values())

    def await_more(self, count):
        """Wait until so many more are acknowledged, and read."""
        read = len(self.reads)
        self.await_acknowledged(count)
        wait_until(lambda: len(self.reads) >= read + count, f"{count} more read", 90)

    def await_acknowledged(self, count):
        sent = self.count()
        wait_until(
            lambda: self.count() >= sent + count, f"{count} more acknowledged", 90
        )

    def finish(self):
        """Stop the senders; the reader has everything that they have sent."""
        self._end_sends()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        self._await_reads()
        self._stop.set()

    def _await_reads(self):
        wait_until(
            lambda: len({key for key, _ in self.reads}) >= self.count(),
            "everything is read",
            90,
        )

    def _end_sends(self):
        self._no_more.set()

    def _converse(self, act, argument, stop):
        """Do something again and again on a connection with the master."""
        name = None
        while not stop.wait(0.05):
            name = self._group.master() or name
            try:
                line = Line(self._group.address(name), TIMEOUT_S)
            except (OSError, KeyError):
                continue
            try:
                while not stop.is_set() and act(line, argument):
                    time.sleep(0 if self.is_once else PAUSE_S)
            except (OSError, AssertionError):
                pass
            finally:
                line.close()

    def _send(self, line, queue):
        """Send the next number; whether it is acknowledged."""
        number = self.acknowledged[queue]
        key = queue, number
        name = ""
        if self.is_once:
            name = f"{queue:08}{number:024}"
        if not self.is_once or self._tried.get(queue) != number:
            with self._lock:
                self.history.invoke(key)
        self._tried[queue] = number
        self.failed += 1
        answer = send(line, TOPIC, queue, b"%d:%d" % key, name)
        is_stored = answer.code == ResponseCode.SUCCESS
        place = None
        if is_stored:
            place = Place(TOPIC, queue, int(answer.ext_fields["queueOffset"]))
        if is_stored or not self.is_once:
            with self._lock:
                self.history.answer(key, answer.code, place)
        self.acknowledged[queue] += is_stored
        self.failed -= is_stored
        return is_stored

    def _read(self, line, offsets):
        """Read what is new in each queue, after the last reads; whether there was."""
        known = len(self.reads)
        for queue in range(QUEUES):
            answer = pull(line, queue, offsets.get(queue, 0))
            if answer.code not in (
                ResponseCode.SUCCESS,
                ResponseCode.PULL_NOT_FOUND,
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                ResponseCode.PULL_OFFSET_MOVED,
            ):
                return False
            self.reads += [read_of(record) for record in decode_stored(answer.body)]
            offsets[queue] = int(answer.ext_fields["nextBeginOffset"])
        return len(self.reads) > known

    def faults(self, address):
        """What is wrong with the messages of a broker, and with those of the reader."""
        stored = [read_of(each) for each in wire.pull(address, TOPIC, queues=QUEUES)]
        return self.history.faults(stored) + self.history.faults(
            self.reads, is_in_order=True
        )

    def repeats(self):
        """How many messages are stored twice, as those are that were sent again."""
        return len(set(self.reads)) - len({key for key, _ in self.reads})

    def received_again(self):
        """How many deliveries the consumer got of messages that it had."""
        return self.received.total() - len(self.received)


class DriverLoad(Load):
    """The senders are threads of a client's driver.

    The client finds the master by itself, and chooses the queue of each attempt.
    """

    def __init__(self, group, client, home):
        super().__init__(group, is_once=True)
        self.acknowledged = dict.fromkeys(range(SENDERS), 0)
        for sender in self.acknowledged:
            self._invoke((sender, 0))
        self._is_sent = threading.Event()
        self._driver = Popen(
            self._command(client, home),
            stdin=PIPE,
            stdout=PIPE,
            text=True,
            env=plain_environment() | {"HOME": str(home)},
        )
        self._threads = [threading.Thread(target=self._follow)]

    def _invoke(self, key):
        """A sender is about to send it."""
        self.history.invoke(key)

    def _command(self, client, home):
        words = "repeat", self._group.namesrv, TOPIC, str(SENDERS)
        return client.driver(home, *words)

    def __exit__(self, *_):
        self._end_sends()
        if self.is_once:
            super().__exit__()
        self._driver.kill()
        self._driver.wait()
        super().__exit__()
        self._driver.stdout.close()

    def _end_sends(self):
        self._driver.stdin.close()

    def _follow(self):
        """Record what the driver prints, until it ends."""
        for line in self._driver.stdout:
            word, *numbers = line.split()
            self._read_line(word, *map(int, numbers))

    def _read_line(self, word, *numbers):
        if word == "failed":
            self.failed += 1
            return
        assert word == "acknowledged", word
        sender, number, *where = numbers
        place = Place(TOPIC, *where) if where else None
        with self._lock:
            self.history.answer((sender, number), ResponseCode.SUCCESS, place)
            self._invoke((sender, number + 1))
        self.acknowledged[sender] = number + 1


class GrpcLoad(DriverLoad):
    """The senders and a consumer are an SDK of 5.x, which asks the brokers for routes.

    The SDK does not report the queue that the broker chose. A send that fails is
    another message for the broker, so it may be stored twice. The consumer may receive
    a message again; it has to receive all that are acknowledged.
    """

    def __init__(self, group, client, home):
        wire.make_topic(group.address(group.master()), TOPIC, QUEUES)
        super().__init__(group, client, home)
        self.is_once = False

    def _invoke(self, key):
        for _ in range(ATTEMPTS):
            super()._invoke(key)

    def _command(self, client, home):
        endpoints = ";".join(map(self._group.address, self._group.sides))
        words = ("repeat", endpoints, TOPIC, str(SENDERS), "group=consumers")
        return client.driver(home, *words, "keepalive=true")

    def _read_line(self, word, *numbers):
        if word == "received":
            self.received[numbers] += 1
        elif word == "failed":
            self.failed += 1
            (sender,) = numbers
            with self._lock:
                self._invoke((sender, self.acknowledged[sender]))
        elif word == "acknowledged":
            super()._read_line(word, *numbers)
        else:
            self._is_sent.set()

    def finish(self):
        """Stop the senders; the consumer has everything that they have sent."""
        self._end_sends()
        assert self._is_sent.wait(60)
        self._await_reads()
        wait_until(
            lambda: len(self.received) >= self.count(), "everything is received", 120
        )
        self._stop.set()


def pull(line, queue, offset):
    fields = {
        "consumerGroup": "readers", "topic": TOPIC, "queueId": queue,
        "queueOffset": offset, "maxMsgNums": 32, "sysFlag": wire.BY_EXPRESSION,
        "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*",
        "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return line.call(RequestCode.PULL_MESSAGE, fields)


def read_of(record):
    sender, number = map(int, record.body.split(b":"))
    return (sender, number), Place(TOPIC, record.queue_id, record.queue_offset)
