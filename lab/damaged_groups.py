"""Groups of real processes that are damaged and start again, and their judge.

Each function runs one row: it starts brokers with a load, ends them, damages files of
the victim, starts all in the row's order, and judges.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from lab.damages import DAMAGES, OFFSETS, TABLES, TAGGED, log_files
from rmq.protocol.codes import RequestCode, ResponseCode
from tests.history import Fault
from tests.interop import wire
from tests.interop.groups import QUEUES, TOPIC, Group, Load, arguments, leads, send
from tests.interop.interchange import Line
from tests.interop.machines import HERE
from tests.interop.processes import ROOT, Server, free_port, serving
from tests.simulation.damage import STATE
from tests.waiting import wait_until

SERVES_S = 60.0
FILE_SIZE = 1 << 16
MESSAGES = 800
FEW = 100
HEAD_START_S = 3.0
"""How long one of them runs before the other one starts."""

SURE_S = 20.0
"""A head start in which a controller that is sure of its state elects a master."""

SHOWN_S = 5.0
"""Limit for a slave to show the last messages: a Java master sends the offset up to
which they are confirmed only with its next heartbeat.
"""

COMMITTER, TAG = "committer", "red"
EMPTY = "c"
"""The member of a group of three that loses its disk."""


class Row(NamedTuple):
    """What is damaged, on which broker, and when this broker starts."""

    damage: str
    victim: str = ""
    order: str = ""
    flush: str = "ASYNC_FLUSH"
    kind: str = "group"
    """A group with a controller, or another one of KINDS."""

    @property
    def name(self) -> str:
        """Return the name by which a person chooses it."""
        kind = "" if self.kind == "group" else self.kind
        flush = "" if self.flush == "ASYNC_FLUSH" else "sync"
        parts = kind, self.damage, self.victim, self.order, flush
        return "-".join(filter(None, parts))


class Result(NamedTuple):
    """What came of a row."""

    damage: str
    served_s: float
    faults: list[str]


class Controller:
    """A controller of rmq that starts again at its address, on its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = free_port()
        self.address = f"{HERE.host}:{self._port}"
        self.start()

    def start(self) -> None:
        """Start it; it leads."""
        settings = (
            f"controllerStorePath={self.folder}",
            f"rmq.controller.listenPort={self._port}",
            f"rmq.controller.address={self.address}",
        )
        self._server = Server(*arguments(HERE, *settings))
        wait_until(lambda: leads(self.address), "the controller leads", 60)

    def kill(self) -> None:
        """End it at once."""
        self._server.kill()

    @property
    def lines(self) -> list[str]:
        """Return what it has logged since its last start."""
        return self._server.lines

    def keep_copy(self) -> None:
        """Copy the state to the folder `older`."""
        older = self.folder / "older"
        older.mkdir(exist_ok=True)
        for name in STATE:
            shutil.copy(self.folder / name, older)


class FixedGroup(Group):
    """A master and its slaves without a controller; one broker is alone."""

    def __init__(self, folder: Path, namesrv: str, kinds: dict[str, str]) -> None:
        super().__init__(folder, namesrv, [], kinds)
        role = "SYNC_MASTER" if len(kinds) > 1 else "ASYNC_MASTER"
        self._roles = dict.fromkeys(kinds, "SLAVE") | {min(kinds): role}
        self.add_settings(
            enableControllerMode="false", controllerAddr="", inSyncReplicas=len(kinds)
        )

    def own_keys(self, name: str) -> dict[str, object]:
        """Return the keys of one broker."""
        number = sorted(self._roles).index(name)
        role = {"brokerRole": self._roles[name], "brokerId": number}
        return super().own_keys(name) | role

    def master(self) -> str | None:
        """Return the master if it runs."""
        name = min(self._roles)
        return name if name in self.sides else None

    def await_all(self) -> None:
        """Wait until all slaves follow."""
        for name in sorted(self._roles)[1:]:
            wait_until(lambda: self._follows(name), f"{name} follows", 90)  # noqa: B023

    def _follows(self, name: str) -> bool:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return b"following" in wire.call(self.address(name), code).body


class Scene:
    """A running group with a load, and what is found about it."""

    def __init__(
        self, row: Row, seed: int, kinds: Sequence[str], stack: ExitStack
    ) -> None:
        self.row = row
        self.chance = Random(f"{row.name} {seed}")
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.faults: list[str] = []
        self.served_s = 0.0
        names = stack.enter_context(serving("namesrv", "--set", "listenPort=0"))
        members = dict(zip("abc", kinds, strict=False))
        self.controller: Controller | None = None
        self.group: Group
        if row.kind in ("pair", "alone", "verify"):
            self.group = FixedGroup(self.folder, names.namesrv, members)
        else:
            self.controller = Controller(self.folder / "controller")
            stack.callback(lambda: self.controller and self.controller.kill())
            addresses = [self.controller.address]
            self.group = Group(self.folder, names.namesrv, addresses, members)
        self.group.add_settings(
            mappedFileSizeCommitLog=FILE_SIZE,
            maxMessageSize=8192,
            flushDiskType=row.flush,
            flushConsumerOffsetInterval=100,
        )
        stack.callback(self.group.close)
        begin, *others = members
        self.group.start(begin)
        if self.controller is not None:
            self.group.await_master()
            self.controller.keep_copy()
        self.group.start(*others)
        self.group.await_all()
        self.load = stack.enter_context(Load(self.group))
        self.load.await_acknowledged(MESSAGES)

    def pick(self) -> tuple[str, str]:
        """Return the victim and the other one."""
        master = self.group.master() or "a"
        slave = "ba"["ab".index(master)]
        return (slave, master) if self.row.victim == "slave" else (master, slave)

    def damage(self, folder: Path) -> str:
        """Do the row's damage in a folder; return what was done."""
        return DAMAGES[self.row.damage].make(folder, self.chance)

    def start(
        self,
        first: str,
        second: str,
        head_start_s: float,
        *,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start both in the row's order; a broker is ready when its log is whole.

        The first one has a head start of `head_start_s`, or `until` it has what it is
        for.
        """
        began = time.monotonic()
        if self.row.order == "last":
            self.group.start(second, first)
        else:
            thread = threading.Thread(target=self.group.start, args=(first,))
            thread.start()
            if self.row.order != "together":
                while not until() and time.monotonic() < began + head_start_s:
                    time.sleep(0.1)
            self.group.start(second)
            thread.join()
        self.await_served(began)

    def await_served(self, began: float) -> None:
        """Wait until a message is acknowledged."""
        count = self.load.count()
        while self.load.count() == count:
            if time.monotonic() - began > SERVES_S:
                self.faults.append(f"not served within {SERVES_S:g} s")
                break
            time.sleep(0.05)
        self.served_s = time.monotonic() - began

    def judge(self, *names: str) -> None:
        """End the load; these brokers have all that was acknowledged."""
        self.load.finish()
        for name in names:
            self.faults += [f"{name}: {fault}" for fault in self.faults_of(name)]

    def faults_of(self, name: str) -> list[Fault]:
        """Return what a broker lacks after SHOWN_S."""
        until_s = time.monotonic() + SHOWN_S
        while found := self.load.faults(self.group.address(name)):
            if time.monotonic() > until_s:
                break
            time.sleep(0.2)
        return found

    def judge_reports(self, lines: Sequence[str]) -> None:
        """Somebody has reported the damage."""
        text = "".join(lines)
        if not any(each in text for each in DAMAGES[self.row.damage].reports):
            self.faults.append(f"nobody has reported the damage: {text[-400:]}")

    def await_equal(self, victim: str, *others: str) -> None:
        """Read the victim's old messages until all have the same first log file."""
        paths = [
            min((self.group.store(each) / "commitlog").iterdir())
            for each in (victim, *others)
        ]
        until_s = time.monotonic() + SERVES_S
        while len({path.read_bytes() for path in paths}) > 1:
            with suppress(AssertionError):  # the answer is an error until it has healed
                wire.pull(self.group.address(victim), TOPIC, queues=QUEUES)
            if time.monotonic() > until_s:
                self.faults.append(f"{paths[0]} is not as the others")
                return
            time.sleep(0.2)


def run_group(scene: Scene) -> str:
    """All are killed, the log of one is damaged."""
    group = scene.group
    victim, other = scene.pick()
    for name in (victim, other):
        group.kill(name)
    done = scene.damage(group.store(victim))
    scene.start(victim, other, HEAD_START_S)
    group.await_all()
    if scene.row.damage == "field":
        scene.await_equal(victim, other)
    scene.judge(victim, other)
    scene.judge_reports(group.lines(victim))
    return done


def run_state(scene: Scene) -> str:
    """The state of the controller is damaged; a member that lags starts first."""
    group, controller = scene.group, scene.controller
    assert controller is not None, "this kind has one"
    lagging, other = scene.pick()
    group.kill(lagging)
    group.await_master()
    scene.load.await_acknowledged(FEW)
    group.kill(other)
    controller.kill()
    done = scene.damage(controller.folder)
    controller.start()
    scene.start(lagging, other, SURE_S)
    group.await_all()
    scene.judge(lagging, other)
    scene.judge_reports(controller.lines)
    return done


def run_empty(scene: Scene) -> str:
    """A member without a log copies from a master with damage in its old messages."""
    group = scene.group
    victim, other = scene.pick()
    group.kill(EMPTY)  # the last one that lives would be the only one in the set
    wait_until(lambda: len(group.in_sync()) < len("abc"), "the set is smaller", 90)
    for name in (other, victim):
        group.kill(name)
    done = scene.damage(group.store(victim))
    shutil.rmtree(group.store(EMPTY))
    scene.start(victim, other, SURE_S, until=lambda: group.master() == victim)
    if group.master() != victim:
        scene.faults.append(f"{group.master()} is the master, not {victim}")
    group.start(EMPTY)
    group.await_all()
    scene.await_equal(victim, other, EMPTY)
    scene.judge(victim, other, EMPTY)
    scene.judge_reports(group.lines(victim))
    return done


def run_alone(scene: Scene) -> str:
    """A queue or a table of one broker is damaged; it starts, and is killed again."""
    group = scene.group
    address = group.address("a")
    line = Line(address)
    wire.make_topic(address, TAGGED, 1)
    for _ in range(FEW):
        send(line, TAGGED, 0, b"tagged", tags=TAG)
    line.close()
    body = json.dumps({"groupName": COMMITTER}).encode()
    wire.call(address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    offsets = [commit(group, number) for number in (10, 20, 30, 40)]
    if scene.row.damage in TABLES:
        group.kill("a")
    else:
        group.stop("a")
    done = scene.damage(group.store("a"))
    began = time.monotonic()
    group.start("a")
    scene.await_served(began)
    lines = list(group.lines("a"))
    scene.load.await_acknowledged(FEW)
    group.kill("a")
    group.start("a")
    scene.judge("a")
    address = group.address("a")
    found = wire.pull(address, TAGGED, queues=1, tags=TAG)
    if len(found) != FEW:
        scene.faults.append(f"{len(found)} of {FEW} messages have their tag")
    offset = wire.committed(address, COMMITTER, TOPIC, 1)
    if offset not in offsets:
        scene.faults.append(f"the committed offset is {offset}")
    scene.judge_reports(lines)
    return done


def commit(group: Group, offset: int) -> int:
    """Commit an offset, which the broker saves; return it."""
    fields = {
        "consumerGroup": COMMITTER, "topic": TOPIC, "queueId": 0,
        "commitOffset": offset,
    }  # fmt: skip
    answer = wire.call(group.address("a"), RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    path = group.store("a") / "config" / OFFSETS
    wait_until(
        lambda: path.exists() and f":{offset}" in path.read_text(), "it is saved"
    )
    return offset


def run_verify(scene: Scene) -> str:
    """`rmq store verify` reads the damaged log of a broker that runs."""
    store = scene.group.store("a")
    path = log_files(store)[0]
    whole = path.read_bytes()
    done = scene.damage(store)
    command = [sys.executable, "-m", "rmq", "store", "verify", str(store)]
    try:
        found = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=SERVES_S
        )
    except subprocess.TimeoutExpired:
        scene.faults.append("verify does not end")
    else:
        if found.returncode != 1:
            scene.faults.append(f"verify ends with code {found.returncode}")
        scene.judge_reports([found.stdout])
    with path.open("r+b") as file:
        file.write(whole)
    scene.await_served(time.monotonic())
    scene.judge("a")
    return done


KINDS: dict[str, tuple[Callable[[Scene], str], int]] = {
    "group": (run_group, 2),
    "state": (run_state, 2),
    "pair": (run_group, 2),
    "empty": (run_empty, 3),
    "alone": (run_alone, 1),
    "verify": (run_verify, 1),
}
"""How a row runs, and how many brokers it has."""


def run_row(row: Row, seed: int, kinds: Sequence[str] = ()) -> Result:
    """Run a row once; the victim is a broker of rmq."""
    run, count = KINDS[row.kind]
    with ExitStack() as stack:
        scene = Scene(row, seed, kinds or ("rmq",) * count, stack)
        done = run(scene)
        return Result(done, scene.served_s, scene.faults)
