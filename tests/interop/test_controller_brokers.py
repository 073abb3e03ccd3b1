"""Groups of brokers, of rmq and of Java, under controllers of Java and of rmq.

The master is killed, or cut off, under load, again and again: a slave takes over by
itself, the old master comes back as its slave, what was acknowledged is stored, in its
order, consumers go on, and the logs are equal byte by byte.  If rmq's controllers are
on etcd, the machine where it leads is cut off, too, or another member is killed.

Each test has RMQ_INTEROP_ROUNDS (2) kills or cuts; `make interop SET=failover` has ten.
Machines are network namespaces; where these are not allowed, or RMQ_INTEROP_PROXIES is
set, they have proxies that cut.  Each test has a network of its own, so that several
may run beside each other.  One combination is not here, as it loses messages: a
master of Java's that clients reach, and its slaves and controllers do not.  It takes
its slaves out of the set before a controller agrees, and acknowledges messages alone.
"""

import os
import time
from contextlib import contextmanager
from random import randrange

import pytest

from tests.waiting import wait_until

from .conftest import prepared
from .etcd import Etcd
from .five import PythonSdk
from .groups import CONTROLLERS, DriverLoad, Group, GrpcLoad, Load
from .machines import HERE, Network, network
from .processes import serving
from .proxies import proxies
from .test_replication import end_of, log_bytes
from .toolchains import Go, Java, JavaServers

ROUNDS = int(os.environ.get("RMQ_INTEROP_ROUNDS", "2"))
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600 + 120 * ROUNDS)]

GROUPS = ("rmq+rmq", "Java+Java", "rmq+Java", "rmq+rmq+rmq")
ROWS = [(each, group) for each in CONTROLLERS for group in GROUPS]
MESSAGES = 200
"""At least so many are acknowledged and read between two kills or cuts."""

OF_RMQ = [row for row in ROWS if "Java" not in row[1]]
CLIENTS = {"once by Java": Java, "once by Go": Go}
ONCE = "once", *CLIENTS
"""Senders repeat a key until it is acknowledged, and it is stored once."""

GRPC = "gRPC"
"""An SDK of 5.x sends and receives."""

WAYS = *ONCE, GRPC

KILLS = [(*row, "plain") for row in ROWS]
KILLS += [(*row, way) for row in OF_RMQ for way in WAYS]
KEYS = {way: {"rmq.onceWindowMs": 86_400_000} for way in ONCE} | {"plain": {}, GRPC: {}}
MORE = dict.fromkeys(ONCE, int(os.environ.get("RMQ_INTEROP_ONCE", MESSAGES)))
MORE["plain"] = MORE[GRPC] = MESSAGES


@pytest.fixture(autouse=True)
def servers(controller):
    if "etcd" in controller and Etcd.is_missing():
        pytest.skip("not run: no etcd on this machine")
    return prepared(JavaServers())


def kinds_of(group):
    return {f"b{number}": kind for number, kind in enumerate(group.split("+"))}


@pytest.fixture(autouse=True)
def net(tmp_path):
    """Of this test alone."""
    if os.environ.get("RMQ_INTEROP_PROXIES") or Network.is_missing():
        made = proxies(f"127.{randrange(1, 255)}.{randrange(255)}", tmp_path)
    else:
        made = network()
    with made as machines:
        yield machines


@contextmanager
def running(folder, controller, kinds, hosts, brokers=None, hub=HERE, **more):
    """A group with its controllers, on these machines; etcd, too, if it is there.

    The name server is on the hub, with those who send and read.  `more` keys are of
    the brokers.
    """
    settings = (
        "listenPort=0",
        f"bindAddress={hub.bound}",
        f"rmq.namesrv.brokersFrom={hub.host}/24",
    )
    words = [word for each in settings for word in ("--set", each)]
    with (
        serving("namesrv", *words, inside=hub.inside) as names,
        CONTROLLERS[controller](folder / "controller", hosts) as (addresses, etcd),
    ):
        namesrv = names.namesrv.replace(hub.bound, hub.host)
        group = Group(folder, namesrv, addresses, kinds_of(kinds), brokers)
        group.add_settings(**more)
        try:
            group.start_all()
            yield group, etcd
        finally:
            group.close()


def load_of(group, way, home):
    """The senders of a row, and its reader."""
    if way in CLIENTS:
        return DriverLoad(group, prepared(CLIENTS[way]()), home)
    if way == GRPC:
        return GrpcLoad(group, prepared(PythonSdk()), home)
    return Load(group, is_once=way == "once")


def judge(group, load):
    """Everything is there, on all brokers alike."""
    load.finish()
    names = sorted(group.sides)
    wait_until(
        lambda: len({end_of(group.address(name)) for name in names}) == 1,
        "the slaves have caught up",
        60,
    )
    faults = load.faults(group.address(group.master()))
    assert not faults, (len(faults), faults[:5])
    end = end_of(group.address(names[0]))
    group.close()
    assert len({log_bytes(group.store(name), end) for name in names}) == 1
    assert not load.is_once or load.repeats() == 0
    assert load.count()  # a load without acknowledged messages proves nothing
    return end


def report(row, what, load, times, end):
    print(
        f"{row}: {load.count()} acknowledged, {ROUNDS} {what}, {load.repeats()} stored "
        f"twice, {load.received_again()} received again, {load.failed} sends failed; "
        "senders went on after "
        + ", ".join(f"{each:.1f}" for each in times)
        + f" s; {end} bytes equal"
    )


@pytest.mark.parametrize(("controller", "kinds", "way"), KILLS)
def test_a_killed_master_is_replaced(tmp_path, controller, kinds, way):
    times = []
    with (
        running(tmp_path, controller, kinds, (HERE,) * 3, **KEYS[way]) as (group, _),
        load_of(group, way, tmp_path) as load,
    ):
        load.await_more(MESSAGES)
        for _ in range(ROUNDS):
            master, epoch = group.master(), group.epoch()
            group.kill(master)
            killed = time.monotonic()
            group.await_master(after=epoch)
            load.await_acknowledged(1)
            times.append(time.monotonic() - killed)
            group.start(master)
            group.await_all()
            load.await_more(MORE[way])
        end = judge(group, load)
    report(f"{controller}, {kinds}, {way}", "kills", load, times, end)


# -- cut off


class Machines:
    """The machines of a group, its controllers, and what is cut now."""

    def __init__(self, net, kinds):
        self._net = net
        self.hosts = tuple(net.machine() for _ in range(3))
        self.brokers = {name: net.machine() for name in kinds}

    def cut(self, name, how):
        if how == "off":
            self._net.cut(self.brokers[name])
        else:
            self._net.part(*self._from_group(name))

    def heal(self, name, how):
        if how == "off":
            self._net.heal(self.brokers[name])
        else:
            self._net.join(*self._from_group(name))

    def _from_group(self, name):
        others = [each for other, each in self.brokers.items() if other != name]
        return self.brokers[name], *others, *self.hosts

    @contextmanager
    def disturbed(self, etcd, number):
        """Cut off the machine where etcd leads, or kill another member of etcd."""
        if etcd is None:
            yield
            return
        leader = etcd.leader()
        if number % 2:
            other = next(name for name in etcd.machines if name != leader)
            etcd.kill(other)
            yield
            etcd.start(other)
        else:
            self._net.cut(etcd.machines[leader])
            yield
            self._net.heal(etcd.machines[leader])
        wait_until(etcd.is_whole, "etcd has all members", 60)


CUTS = [
    *((*row, "off", "plain") for row in ROWS),
    *((*row, "from the group", "plain") for row in OF_RMQ),
    *(
        (*row, how, way)
        for row in OF_RMQ
        for how in ("off", "from the group")
        for way in WAYS
    ),
]


@pytest.mark.parametrize(("controller", "kinds", "how", "way"), CUTS)
def test_a_master_that_is_cut_off_is_replaced(
    tmp_path, net, controller, kinds, how, way
):
    times = []
    machines = Machines(net, kinds_of(kinds))
    places = machines.hosts, machines.brokers, net.hub
    with (
        running(tmp_path, controller, kinds, *places, **KEYS[way]) as (group, etcd),
        load_of(group, way, tmp_path) as load,
    ):
        load.await_more(MESSAGES)
        for number in range(ROUNDS):
            master, epoch = group.master(), group.epoch()
            with machines.disturbed(etcd, number):
                machines.cut(master, how)
                cut = time.monotonic()
                group.await_master(after=epoch)
                load.await_acknowledged(1)
                times.append(time.monotonic() - cut)
            machines.heal(master, how)
            group.await_all()
            load.await_more(MORE[way])
        end = judge(group, load)
    report(f"{controller}, {kinds}, {way}", f"cuts {how}", load, times, end)
