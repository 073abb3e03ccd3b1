"""mqadmin's commands to controllers, and `rmq admin`'s, for Java's and for rmq's.

The same commands run for the same group of two brokers, of Java or of rmq, under each
controller; what mqadmin prints is compared line by line, and so is what `rmq admin`
prints.
"""

import re
import subprocess
import sys
from functools import cache

import pytest

from tests.waiting import wait_until

from .conftest import prepared
from .groups import CONTROLLERS, NAME, Group
from .processes import ROOT, serving
from .toolchains import MQADMIN, Java, JavaServers, plain_environment

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

CLUSTER = "DefaultCluster"
MASKS = (
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"n0-\d+|\bn0\b"), "ADDRESS"),
    (re.compile(r"CODE: (\d+) {2}DESC: "), r"CODE: \1 DESC: "),
    (re.compile(r"\d{13,}"), "NUMBER"),
    (re.compile(r"(?m)^\s*at .*\n?|^.*(WARN|main\] INFO).*\n?"), ""),
)
SHARED_KEYS = {
    "controllerStorePath", "enableElectUncleanMaster", "notifyBrokerRoleChanged",
    "scanInactiveMasterInterval",
}  # fmt: skip
DIFFERS = {
    "getControllerMetaData": "peers of Java's DLedger controller have names, too",
    "electMaster": "the tool cannot read the answer of Java's controller",
    "updateControllerConfig of a black one": "rmq's remark names the key",
}
"""Commands of mqadmin whose output is not Java's, and why."""

ADMIN_DIFFERS = {
    "getControllerMetaData", "updateControllerConfig of a black one",
    "getControllerConfig",
}  # fmt: skip
"""Commands of `rmq admin`: Java's controllers have other keys."""


@pytest.fixture(autouse=True)
def servers():
    prepared(Java())
    return prepared(JavaServers())


def mqadmin(*words):
    return output_of(prepared(Java()).command(MQADMIN, *words), plain_environment())


def rmq_admin(*words):
    return output_of([sys.executable, "-m", "rmq", "admin", *words], None)


def output_of(command, environment):
    done = subprocess.run(
        command,
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout


def masked(text):
    for pattern, mask in MASKS:
        text = pattern.sub(mask, text)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


class Outputs:
    """What both tools print for one controller, by tool and command."""

    def __init__(self, controller, names):
        self._controller, self._names = ["-a", controller], ["-n", names]
        self.lines = {}

    def run(self, name, *words, note="", tools=("mqadmin", "rmq admin")):
        if name != "getBrokerEpoch":
            words = *self._controller, *words
        if name != "getControllerMetaData":
            words = *words, *self._names
        key = f"{name} {note}".strip()
        for tool in tools:
            text = {"mqadmin": mqadmin, "rmq admin": rmq_admin}[tool](name, *words)
            self.lines[tool, key] = self._lines(key, text)

    @staticmethod
    def _lines(key, text):
        lines = masked(text)
        if key == "getControllerConfig":
            return sorted({re.split("[ =]", line)[0] for line in lines} & SHARED_KEYS)
        # the tool's order is that of the hashes of the addresses
        return sorted(lines) if key == "getBrokerEpoch" else lines


def outputs(folder, controller, brokers):
    """What each command prints for a group of two of these brokers."""
    with (
        serving("namesrv", "--set", "listenPort=0") as names,
        CONTROLLERS[controller](folder / "controller") as ((address,), _),
    ):
        group = Group(folder, names.namesrv, [address], {"a": brokers, "b": brokers})
        found = Outputs(address, names.namesrv)
        try:
            group.start_all()
            run_all(found, group)
            return found
        finally:
            group.close()


def run_all(found, group):
    of_group = "-bn", NAME, "-c", CLUSTER
    found.run("getControllerMetaData")
    found.run("getSyncStateSet", "-b", NAME)
    found.run("getSyncStateSet", "-b", "nobody", note="of nobody")
    found.run("getBrokerEpoch", "-b", NAME)
    for name, number, tool in (("b", "2", "mqadmin"), ("a", "1", "rmq admin")):
        found.run("electMaster", "-b", number, *of_group, tools=[tool])
        wait_until(lambda each=name: group.master() == each, f"{name} is master", 60)
        group.await_all()
    found.run("electMaster", "-b", "1", *of_group, note="again")
    found.run("electMaster", "-b", "9", *of_group, note="of a stranger")
    clean = "cleanBrokerMetadata", "-b", "2", *of_group
    found.run(*clean, note="of the living")
    update = "updateControllerConfig", "-k", "notifyBrokerRoleChanged", "-v"
    found.run(*update, "true")
    found.run(
        "updateControllerConfig", "-k", "configStorePath", "-v", "x",
        note="of a black one",
    )  # fmt: skip
    found.run("getControllerConfig")
    address = group.address("b")
    group.kill("b")
    wait_until(lambda: group.is_dead(address), "broker 2 is dead and out", 60)
    found.run(*clean, note="of the dead")
    found.run("getSyncStateSet", "-b", NAME, note="at the end")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """By controller and brokers."""
    return cache(lambda *of: outputs(tmp_path_factory.mktemp("group"), *of))


def differences(found, others):
    """Commands that print something else, by tool."""
    different = {"mqadmin": set(), "rmq admin": set()}
    for (tool, command), lines in found.lines.items():
        other = others.lines[tool, command]
        print(f"--- {tool} {command}", *lines, "beside", *other, sep="\n")
        if lines != other:
            different[tool].add(command)
    return different


@pytest.mark.parametrize("brokers", ["Java", "rmq"])
@pytest.mark.parametrize("controller", ["DLedger", "JRaft"])
def test_outputs_beside_those_for_javas_controllers(printed, controller, brokers):
    different = differences(printed(controller, brokers), printed("rmq", brokers))
    assert different["mqadmin"] <= DIFFERS.keys()
    assert different["rmq admin"] <= ADMIN_DIFFERS


@pytest.mark.parametrize("controller", ["DLedger", "JRaft", "rmq"])
def test_outputs_beside_those_for_javas_brokers(printed, controller):
    different = differences(printed(controller, "Java"), printed(controller, "rmq"))
    assert different == {"mqadmin": set(), "rmq admin": set()}
