"""One simulation, from its seed: what happens, what was noted, and what is wrong."""

import contextlib
import ctypes
import hashlib
import itertools
import random
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

import trio

from rmq.errors import RmqError
from tests.history import Fault, History, Read
from tests.simulation import turns
from tests.simulation.clients import QUEUES, Client, Consumer, Producer, read_all
from tests.simulation.world import Machine, World

SETTLED_S = 120.0
SHOWN_S = 30.0
"""A slave hears with the next heartbeat which messages it may show."""

MOST = 5
"""Faults of one kind that are printed."""

PAUSES_S = 0.05, 0.5, 2, 8, 20
CLIENTS = "10.0.0.9"


@dataclass
class Result:
    """What came of a seed."""

    seed: int
    lines: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    stored: int = 0
    disturbances: int = 0
    epoch: int = 0

    @property
    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


class Simulation:
    """Machines, clients, disturbances, and the judge."""

    def __init__(
        self,
        library: ctypes.CDLL,
        root: Path,
        seed: int,
        minutes: float,
        without: Collection[int] = (),
    ) -> None:
        """Disturbances `without` do not happen; all others do as if they did."""
        self.result = Result(seed)
        self._without = without
        self._library, self._seed, self._seconds = library, seed, minutes * 60
        flush = random.Random(f"flush {seed}").choice(["ASYNC_FLUSH", "SYNC_FLUSH"])
        self._is_sync = flush == "SYNC_FLUSH"
        settings = {"flushDiskType": flush, "brokerRole": "SYNC_MASTER"}
        self._world = World(library, root, seed, 2, settings, self.note)
        self._history = History()
        self._client = Client(CLIENTS)

    def note(self, text: str) -> None:
        self.result.lines.append(f"{trio.current_time() - self._began:10.6f} {text}")

    def run(self) -> Result:
        turns.run(self._main, self._library, self._seed)
        return self.result

    async def _main(self) -> None:
        self._began = trio.current_time()
        await self._world.run(self._live)

    async def _live(self) -> None:
        client, world = self._client, self._world
        await world.nursery.start(client.run)
        await self._settle()
        producers = [
            Producer(client, queue, random.Random(f"producer {queue} {self._seed}"))
            for queue in range(QUEUES)
        ]
        consumers = [Consumer(client, queue) for queue in range(QUEUES)]
        async with trio.open_nursery() as nursery:
            for producer in producers:
                nursery.start_soon(producer.run, self._history, self.note)
            for consumer in consumers:
                nursery.start_soon(consumer.run, self.note)
            with trio.move_on_after(self._seconds):
                for number in itertools.count():
                    await self._disturb(number)
            await self._settle()
            nursery.cancel_scope.cancel()
        self.result.acknowledged = sum(each.acknowledged for each in producers)
        await self._judge([read for each in consumers for read in each.reads])

    async def _disturb(self, number: int) -> None:
        """Let something happen to one machine, and end it again."""
        world = self._world
        chance = random.Random(f"disturbance {number} of {self._seed}")
        await trio.sleep(chance.uniform(1, 12))
        if number in self._without:
            return
        state = await self._client.state()
        is_whole = len(alive(state)) == len(world.brokers)
        machine = chance.choice(world.machines)
        kind = chance.choice(["kill", "stop", "cut", "cut", "power", "power"])
        if kind == "power" and not (self._is_sync or is_whole):
            kind = "kill"  # who is alone has promised what only its page cache has
        self.result.disturbances += 1
        self.note(f"disturbance {number}: {kind} {machine.name}")
        if kind == "cut":
            self._cut(machine, chance)
        elif kind == "kill":
            machine.kill()
        elif kind == "power":
            machine.cut_power()
        else:
            await machine.stop()
        await trio.sleep(chance.choice(PAUSES_S))
        self._mend()
        if not self._is_sync or chance.random() < 0.5:
            await self._settle()

    def _cut(self, machine: Machine, chance: random.Random) -> None:
        """Cut some of its links, in one direction or both."""
        machines = self._world.machines
        for other in [each.address for each in machines] + [CLIENTS]:
            if other != machine.address and chance.random() < 0.7:
                ends = machine.address, other
                ways = chance.choice([(ends,), (ends[::-1],), (ends, ends[::-1])])
                for way in ways:
                    self.note(f"cut {way[0]} to {way[1]}")
                    self._world.network.cut(*way)

    def _mend(self) -> None:
        self._world.network.heal()
        for machine in self._world.machines:
            if not machine.is_up:
                self.note(f"start {machine.name}")
                machine.start()

    async def _settle(self) -> None:
        """Wait until all brokers are in the set."""
        self._mend()
        with trio.move_on_after(SETTLED_S):
            while True:
                state = await self._client.state()
                if len(alive(state)) == len(self._world.brokers):
                    self.result.epoch = state["masterEpoch"]
                    self.note(f"settled: epoch {state['masterEpoch']}")
                    return
                await trio.sleep(0.5)
        self.result.faults.append(f"not settled after {SETTLED_S} s: {state}")

    # -- judge

    async def _judge(self, consumed: list[Read]) -> None:
        stored = await self._stored()
        self.result.stored = len(stored)
        self._fail(self._history.faults(stored))
        for key, place in sorted(set(consumed) - set(stored))[:MOST]:
            self.result.faults.append(f"{key} at {place} was read, and is not there")
        self._fail(self._history.faults([*consumed, *stored]))

    async def _stored(self) -> list[Read]:
        """Return what all brokers serve; slaves hear late what they may show."""
        stored: list[list[Read]] = []
        with trio.move_on_after(SHOWN_S):
            while True:
                await trio.sleep(1)
                with contextlib.suppress(RmqError):  # a role has just changed
                    stored = [
                        await read_all(self._client, each.address)
                        for each in self._world.brokers
                    ]
                if stored and all(each == stored[0] for each in stored):
                    return stored[0]
        self.result.faults.append(f"brokers have {[len(each) for each in stored]}")
        return stored[0] if stored else []

    def _fail(self, faults: list[Fault]) -> None:
        self.result.faults += [str(each) for each in faults[:MOST]]


def alive(state: dict) -> list[int]:
    """The brokers of the set that live; nobody without a master."""
    if not state.get("masterBrokerId"):
        return []
    members = state.get("inSyncReplicas", [])
    return [each["brokerId"] for each in members if each["alive"]]
