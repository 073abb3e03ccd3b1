"""Groups of rmq under rmq's controllers, when what is below them is away or wrong.

Each time: a sentence, nothing acknowledged is lost, and the group goes on afterwards.
"""

import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

from tests.waiting import wait_until

from .etcd import Etcd
from .groups import CONTROLLERS, Group, Load
from .machines import HERE, Machine
from .processes import ROOT, free_port, serving
from .test_controller_brokers import MESSAGES, judge

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CLOCK = ROOT / "tests/console/late_clock.c"
HOUR_S = 3_600


@contextmanager
def running(folder, controller, hosts, **brokers):
    with (
        serving("namesrv", "--set", "listenPort=0") as names,
        CONTROLLERS[controller](folder / "controller", hosts) as (addresses, etcd),
    ):
        kinds = dict.fromkeys(brokers, "rmq")
        group = Group(folder, names.namesrv, addresses, kinds, brokers)
        try:
            group.start_all()
            yield group, etcd
        finally:
            group.close()


def test_etcd_is_away_and_then_a_slave_dies(tmp_path):
    """Masters go on without their controllers; without a slave they wait for them."""
    if Etcd.is_missing():
        pytest.skip("not run: no etcd on this machine")
    pair = {"b0": HERE, "b1": HERE}
    with (
        running(tmp_path, "rmq on etcd", (HERE,) * 3, **pair) as (group, etcd),
        Load(group) as load,
    ):
        load.await_more(MESSAGES)
        for name in etcd.machines:
            etcd.kill(name)
        time.sleep(12)  # longer than all leases and heartbeats
        load.await_more(MESSAGES)
        slave = next(name for name in pair if name != "b0")
        group.kill(slave)
        time.sleep(1)
        known = load.count()
        time.sleep(3)
        assert load.count() == known, "nobody has these messages but the master"
        for name in etcd.machines:
            etcd.start(name)
        load.await_acknowledged(MESSAGES)
        group.start(slave)
        group.await_all()
        load.await_more(MESSAGES)
        judge(group, load)


@pytest.fixture(scope="module")
def clocks(tmp_path_factory):
    """A machine whose clock is late by so many seconds."""
    if shutil.which("cc") is None:
        pytest.skip("not run: no cc on this machine")
    library = tmp_path_factory.mktemp("clock") / "late_clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, CLOCK], check=True)

    def late(seconds):
        words = "env", f"LD_PRELOAD={library}", f"LATE_S={seconds}"
        return Machine(HERE.host, words)

    return late


@pytest.mark.parametrize("late_s", [HOUR_S, -HOUR_S], ids=["late", "early"])
def test_the_clock_of_a_broker_is_one_hour_off(tmp_path, clocks, late_s):
    """It is a good slave and a good master: nobody compares clocks."""
    pair = {"b0": clocks(late_s), "b1": HERE}
    with (
        running(tmp_path, "rmq", (clocks(-late_s),), **pair) as (group, _),
        Load(group) as load,
    ):
        for _ in range(2):  # from the wrong clock to the right one, and back
            load.await_more(MESSAGES)
            master, epoch = group.master(), group.epoch()
            group.kill(master)
            killed = time.monotonic()
            group.await_master(after=epoch)
            assert time.monotonic() - killed < 8
            group.start(master)
            group.await_all()
        load.await_more(MESSAGES)
        judge(group, load)


def test_two_lists_of_controllers_that_do_not_know_of_each_other(tmp_path):
    """A broker joins neither, and says why."""
    with (
        serving("namesrv", "--set", "listenPort=0") as names,
        CONTROLLERS["rmq"](tmp_path / "one") as ((one,), _),
        CONTROLLERS["DLedger"](tmp_path / "other") as ((other,), _),
    ):
        settings = {
            "namesrvAddr": names.namesrv, "enableControllerMode": "true",
            "controllerAddr": f"{one};{other}", "storePathRootDir": tmp_path / "store",
            "listenPort": free_port(), "brokerName": "broker-swap",
        }  # fmt: skip
        words = [w for k, v in settings.items() for w in ("--set", f"{k}={v}")]
        with serving("broker", *words) as broker:
            said = "controllerAddr has controllers of different groups"
            wait_until(lambda: said in "".join(broker.lines), "it says so")
            line = next(each for each in broker.lines if said in each)
            assert one in line
            assert other in line
            assert "epoch 1" not in "".join(broker.lines)
