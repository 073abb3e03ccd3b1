"""One simulation, from its seed: what happens, what was noted, and what is wrong."""

import contextlib
import ctypes
import hashlib
import itertools
import random
import traceback
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from unittest.mock import patch

import trio

from rmq.core.errors import RmqError
from rmq.observe.failures import ServiceFailures
from tests.history import Fault, History, Read
from tests.simulation import loads, turns
from tests.simulation.clients import (
    CLIENTS,
    QUEUES,
    TOPIC,
    Client,
    Consumer,
    Producer,
    Wanderer,
    read_all,
)
from tests.simulation.disturbances import SETTLED_S, Disturbances, Style
from tests.simulation.world import World

SHOWN_S = 90.0
"""A slave hears late which messages it may show, and of new topics still later."""

MOST = 5
"""Faults of one kind that are printed."""


def _fail(_self: ServiceFailures, service: str, *_: object) -> NoReturn:
    """Let a service end its broker here: a real one passes the record, or goes on."""
    raise AssertionError(f"the service {service} failed")


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
        *,
        brokers: int = 2,
        steps: int | None = None,
        without: Collection[int] = (),
        damages: Sequence[str] = (),
    ) -> None:
        """It ends after so many disturbances, or minutes."""
        self.result = Result(seed)
        self._steps = itertools.count() if steps is None else range(steps)
        self._library, self._seed, self._seconds = library, seed, minutes * 60
        style = Style.of(seed)
        flush = "SYNC_FLUSH" if style.is_sync else "ASYNC_FLUSH"
        settings = {"flushDiskType": flush, "brokerRole": "SYNC_MASTER"}
        self._history = History()
        self._client = Client(CLIENTS)
        sets_clocks = "clock" in style.kinds
        self._loads = loads.of_seed(self._client, seed, sets_clocks=sets_clocks)
        for load in self._loads:
            settings |= load.settings
        self._world = World(library, root, seed, brokers, settings, self.note)
        self._disturbances = Disturbances(
            self._world, self._client, style, seed, without, self.note, damages
        )

    def note(self, text: str) -> None:
        self.result.lines.append(f"{trio.current_time() - self._began:10.6f} {text}")

    def run(self) -> Result:
        """Run it; a node that ends by an error is a fault."""
        try:
            with patch.multiple(ServiceFailures, add_record=_fail, add_stop=_fail):
                turns.run(self._main, self._library, self._seed, self._check_positions)
        except Exception as error:
            self.result.faults.append("".join(traceback.format_exception(error)))
        self.result.disturbances = self._disturbances.count
        self.result.epoch = self._disturbances.epoch
        return self.result

    def _check_positions(self) -> None:
        """Check the order of positions in each log, whenever all tasks wait."""
        for fault in self._world.broken_positions():
            if len(self.result.faults) < MOST:
                self.result.faults.append(fault)

    async def _main(self) -> None:
        self._began = trio.current_time()
        await self._world.run(self._live)

    async def _live(self) -> None:
        client, world = self._client, self._world
        await world.nursery.start(client.run)
        self._expect(await self._disturbances.settle())
        producers = [
            Producer(client, queue, self._chance(f"producer {queue}"))
            for queue in range(QUEUES)
        ]
        hosts = [each.address for each in world.brokers]
        readers = [
            *(Consumer(client, queue) for queue in range(QUEUES)),
            Wanderer(client, 0, hosts, self._chance("wanderer")),
        ]
        async with trio.open_nursery() as nursery:
            for producer in producers:
                nursery.start_soon(producer.run, self._history, self.note)
            for producer in producers:
                await producer.began.wait()  # logs without a common begin part for good
            for task in (*readers, *self._loads):
                nursery.start_soon(task.run, self.note)
            with trio.move_on_after(self._seconds):
                for number in self._steps:
                    self._expect(await self._disturbances.happen(number))
            self._expect(await self._disturbances.settle())
            nursery.cancel_scope.cancel()
        self.result.acknowledged = sum(each.acknowledged for each in producers)
        await self._judge([read for each in readers for read in each.reads])

    def _chance(self, whose: str) -> random.Random:
        return random.Random(f"{whose} {self._seed}")

    def _expect(self, is_settled: bool) -> None:
        if not is_settled:
            self.result.faults.append(f"not settled after {SETTLED_S:g} s")

    # -- judge

    async def _judge(self, consumed: list[Read]) -> None:
        self._world.network.late = 0
        stored = await self._stored()
        self.result.stored = len(stored)
        self._fail(self._history.faults(stored))
        for key, place in sorted(set(consumed) - set(stored))[:MOST]:
            self.result.faults.append(f"{key} at {place} was read, and is not there")
        self._fail(self._history.faults([*consumed, *stored]))
        for load in self._loads:
            self._fail(load.history.faults(await self._got(load), delayed=load.delayed))
            self.result.faults += load.faults[:MOST]

    async def _got(self, load: loads.Load) -> list[Read]:
        """Return what a load's consumers have got, or what is there for them."""
        if isinstance(load, loads.Pops):
            await load.pop_all()
            return [*load.popped]
        await trio.sleep(load.late_s)
        return await self._stored(load.topic)

    async def _stored(self, topic: str = TOPIC) -> list[Read]:
        """Return what all brokers serve; slaves hear late what they may show."""
        stored: list[list[Read]] = []
        with trio.move_on_after(SHOWN_S):
            while True:
                await trio.sleep(1)
                with contextlib.suppress(RmqError):  # a role has just changed
                    stored = [
                        await read_all(self._client, each.address, topic)
                        for each in self._world.brokers
                    ]
                if stored and all(each == stored[0] for each in stored):
                    return stored[0]
        self.result.faults.append(f"brokers have {[len(each) for each in stored]}")
        return stored[0] if stored else []

    def _fail(self, faults: list[Fault]) -> None:
        self.result.faults += [str(each) for each in faults[:MOST]]
