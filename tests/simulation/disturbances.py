"""What happens to the machines of a simulation, and when: all follows from its seed.

Seeds differ in their style, so that each goes deep somewhere: which kinds of
disturbances there are, whether one ends before the next begins, how many packets the
network loses.  What a group does not bear does not happen: without SYNC_FLUSH a broker
loses its power only while another one has all that it has, and no link is cut, and
nothing else happens until both have.  (Else the controller may elect it before its
heartbeats expire: the other one, which has all, is not heard.)
"""

import random
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import trio

from rmq.core.errors import RmqError
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.controller import ElectMasterRequestHeader
from tests.simulation.clients import CLIENTS, Client
from tests.simulation.damage import (
    DAMAGE_KINDS,
    DAMAGES,
    FORGET,
    LIE,
    ROT,
    ROT_OLD,
    UNLINK,
    choose_rot,
    confirmed_of,
    forget_state,
    is_hidden,
    state_of,
    unlink_file,
)
from tests.simulation.disk_faults import DiskFaults
from tests.simulation.world import CONTROLLER, CONTROLLER_PORT, GROUP, Machine, World

PAUSES_S = 0.05, 0.5, 2, 8, 20
LEISURE_S = 1.0, 12.0
HASTE_S = (0.02, 0.5), (0.02, 2.5)
NEAR_S = 0.005
"""How soon after a sign of life to the controller something happens."""

HOUR_MS = 3_600_000
OFFSETS_MS = -HOUR_MS, 0, HOUR_MS
"""What somebody sets a clock to."""

WHOLE_TRIES = 40
"""How often damage of a log looks for a whole group."""

SETTLED_S = 120.0
"""How long a group may take to be whole after the last disturbance."""

CONNECTED_S = 5
"""Longer than a broker takes to connect again after a cut link."""

UNHEARD_S = 2
"""Less than the 5 s after which a master that starts leaves out the brokers that are
away (`checkSyncStateSetPeriod`).
"""

KINDS = "kill", "stop", "cut", "cut", "power", "power", "blackout", "clock", "elect"


class Style(NamedTuple):
    """What is special about a seed."""

    is_sync: bool
    """With SYNC_FLUSH: every power cut may come at any time, also of all brokers."""

    is_hasty: bool
    """Things happen before the last one is mended."""

    pauses_s: tuple[float, float]

    is_watching: bool
    """Things happen when brokers talk to the controller."""

    late: float
    kinds: tuple[str, ...]

    @classmethod
    def of(cls, seed: int) -> "Style":
        chance = random.Random(f"style {seed}")
        is_sync = chance.random() < 0.5
        is_hasty = chance.random() < 0.5
        possible = [each for each in KINDS if is_sync or each != "blackout"]
        kinds = tuple(each for each in possible if chance.random() < 0.7)
        return cls(
            is_sync,
            is_hasty,
            pauses_s=chance.choice(HASTE_S) if is_hasty else LEISURE_S,
            is_watching=chance.random() < 0.3,
            late=chance.choice([0, 0, 0.005, 0.03]),
            kinds=kinds or ("kill",),
        )


class Disturbances:
    """Disturbs the machines of a world, and mends them."""

    def __init__(
        self,
        world: World,
        client: Client,
        style: Style,
        seed: int,
        without: Collection[int],
        note: Callable[[str], None],
        damages: Sequence[str] = (),
    ) -> None:
        """Disturbances `without` do not happen; all others do as if they did.

        Every second one is of the kinds `damages`, if there are any.
        """
        self.count = 0
        self.epoch = 0
        """The controller's last, as far as it was asked."""

        self._world, self._client, self._style = world, client, style
        self._seed, self._without, self._note = seed, without, note
        self._damages = damages
        self._older: list[list[bytes | None]] = []
        """States that the controller had."""

        self._disks = DiskFaults(world, client, note, self.mend)
        world.network.late = style.late

    async def happen(self, number: int) -> bool:
        """Let something happen; whether the group has become whole when it had to."""
        chance = random.Random(f"disturbance {number} of {self._seed}")
        await self._wait(chance)
        if FORGET in self._damages and self._world.names.is_up:
            self._older.append(state_of(self._world.names.folder))
        if LIE in self._damages:
            self._disks.remember()
        machine = chance.choice(self._world.machines)
        kind = chance.choice(self._style.kinds)
        if self._damages and chance.random() < 0.5:
            machine = chance.choice(self._world.brokers)
            kind = chance.choice(self._damages)
        if number in self._without:
            return True
        if kind == "power" and not self._style.is_sync and not await self._is_safe():
            kind = "kill"  # what is written survives it
        if kind not in ("blackout", *DAMAGE_KINDS) and not machine.is_up:
            kind = "start"
        self.count += 1
        self._note(f"disturbance {number}: {kind} {machine.name}")
        await self._do(kind, machine, chance)
        # nobody else may lose the same bytes, or the newest state
        has_to_settle = kind in (ROT, UNLINK, FORGET, LIE, ROT_OLD)
        has_to_settle |= kind == "power" and not self._style.is_sync
        if self._style.is_hasty and not has_to_settle and chance.random() < 0.7:
            return True
        await trio.sleep(chance.choice(PAUSES_S))
        self.mend()
        if has_to_settle or chance.random() < 0.5:
            return await self.settle()
        return True

    async def _wait(self, chance: random.Random) -> None:
        pause_s = chance.uniform(*self._style.pauses_s)
        if not self._style.is_watching:
            await trio.sleep(pause_s)
            return
        await trio.sleep(pause_s / 2)
        with trio.move_on_after(pause_s):
            await self._world.network.arrival(CONTROLLER)
        await trio.sleep(chance.uniform(0, NEAR_S))

    async def _do(self, kind: str, machine: Machine, chance: random.Random) -> None:
        if kind == "start":
            machine.start()
        elif kind == "cut":
            self._cut(machine, chance)
        elif kind == "elect":
            await self._elect(chance)
        elif kind == "clock":
            machine.date.offset_ms = chance.choice(OFFSETS_MS)
        elif kind == "kill":
            machine.kill()
        elif kind == "power":
            machine.cut_power()
        elif kind in DAMAGE_KINDS:
            await self._damage(kind, machine, chance)
        elif kind == "blackout":
            await self._cut_all_power(chance)
        else:
            await machine.stop()

    async def _damage(self, kind: str, machine: Machine, chance: random.Random) -> None:
        """Damage files of a machine that is stopped or killed for it."""
        if kind == FORGET:
            await self._forget(chance)
            return
        if kind in (ROT, UNLINK):
            await self._damage_log(kind, machine, chance)
            return
        if kind in (ROT_OLD, LIE):
            do = self._disks.lie if kind == LIE else self._disks.rot_old
            with trio.CancelScope(shield=True):  # the time may be over in between
                await do(machine, chance)
            return
        if machine.is_up:
            await machine.stop() if chance.random() < 0.5 else machine.kill()
        self._note(f"{kind}: {DAMAGES[kind](machine.folder, chance)}")

    async def _forget(self, chance: random.Random) -> None:
        """Give the controller an older state; a broker that lags is back first.

        All brokers that were in the newest set come back. If only they know that the
        state is old, they are back, without cut links, before a controller can do
        without them.
        """
        names, older = self._world.names, self._older
        if self._world.network.is_cut:
            self._world.network.heal()
            await trio.sleep(CONNECTED_S)
        lagging, *others = chance.sample(self._world.brokers, len(self._world.brokers))
        if lagging.is_up:
            lagging.kill()
        await trio.sleep(chance.choice(PAUSES_S))  # the set becomes smaller
        for each in [names, *others]:
            if each.is_up and (each is names or chance.random() < 0.7):
                each.kill()
        pauses_s = PAUSES_S
        if older:
            text = forget_state(names.folder, chance.choice(older), chance)
            self._note(f"{names.name}: {text}")
            if is_hidden(names.folder, lagging.folder):
                self._world.network.heal()
                pauses_s = tuple(each for each in PAUSES_S if each <= UNHEARD_S)
        names.start()
        for each in [lagging, *others]:
            if not each.is_up:
                each.start()
            await trio.sleep(chance.choice(pauses_s))

    async def _damage_log(
        self, kind: str, machine: Machine, chance: random.Random
    ) -> None:
        """Damage a log; the damaged machine starts first, or among others.

        What another one has is healed.  If this is not known to be all of the log, the
        disk gives a changed bit right again at the end, and no file goes.
        """
        for _ in range(WHOLE_TRIES):
            if self._world.is_whole():
                break
            await trio.sleep(0.05)
        is_healed = self._world.is_whole()
        everybody = self._world.brokers if chance.random() < 0.5 else [machine]
        for each in everybody:
            if each.is_up:
                each.kill()
        if confirmed_of(machine.folder) < 0:
            return  # without a claim damage looks like a torn end
        rot = choose_rot(machine.folder, chance) if kind == ROT else None
        if rot is not None:
            self._note(f"{rot.name} of {machine.name}: bit {rot.bit} at {rot.at}")
            rot.flip(machine.folder)
        elif is_healed and kind == UNLINK:
            self._note(f"{machine.name}: {unlink_file(machine.folder, chance)}")
        machine.start()
        try:
            await trio.sleep(chance.choice(PAUSES_S))
            for each in everybody:
                if each is not machine and not each.is_up:
                    each.start()
            await trio.sleep(chance.choice(PAUSES_S))
        finally:  # also when the time of disturbances is over
            if rot is not None and not is_healed:
                if machine.is_up:
                    machine.kill()
                rot.undo(machine.folder)

    async def _elect(self, chance: random.Random) -> None:
        """An operator names a master."""
        broker_id = chance.randrange(len(self._world.brokers)) + 1
        header = ElectMasterRequestHeader(
            broker_name=GROUP, broker_id=broker_id, designate_elect=True
        )
        request = Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
        try:
            answer = await self._client.ask(f"{CONTROLLER}:{CONTROLLER_PORT}", request)
        except RmqError as error:
            self._note(f"elect {broker_id}: {type(error).__name__}")
        else:
            self._note(f"elect {broker_id}: {answer.code} {answer.remark or ''}")

    async def _cut_all_power(self, chance: random.Random) -> None:
        """Cut that of all brokers; one of them is back before the others."""
        brokers = self._world.brokers
        for each in brokers:
            if each.is_up:
                each.cut_power()
        await trio.sleep(chance.choice(PAUSES_S))
        chance.choice(brokers).start()

    def _cut(self, machine: Machine, chance: random.Random) -> None:
        """Cut some of its links, in one direction or both."""
        machines = self._world.machines
        for other in [each.address for each in machines] + [CLIENTS]:
            if other != machine.address and chance.random() < 0.7:
                ends = machine.address, other
                ways = chance.choice([(ends,), (ends[::-1],), (ends, ends[::-1])])
                for way in ways:
                    self._note(f"cut {way[0]} to {way[1]}")
                    self._world.network.cut(*way)

    def mend(self) -> None:
        """End all cuts, start all nodes."""
        self._world.network.heal()
        for machine in self._world.machines:
            if not machine.is_up:
                self._note(f"start {machine.name}")
                machine.start()

    async def settle(self) -> bool:
        """Mend all, and wait until the group is whole; False if that takes too long."""
        self.mend()
        with trio.move_on_after(SETTLED_S):
            while True:
                if await self.is_whole():
                    self._note(f"settled: epoch {self.epoch}")
                    return True
                await trio.sleep(0.5)
        return False

    async def _is_safe(self) -> bool:
        """Whether all brokers have everything, and everybody is heard."""
        return not self._world.network.is_cut and await self.is_whole()

    async def is_whole(self) -> bool:
        """Whether all brokers are in the set, for the controller and the master, and
        have the same log."""
        state = await self._client.state()
        if len(alive(state)) < len(self._world.brokers):
            return False
        self.epoch = state["masterEpoch"]
        return self._world.is_whole()


def alive(state: dict) -> list[int]:
    """The brokers of the set that live; nobody without a master."""
    if not state.get("masterBrokerId"):
        return []
    members = state.get("inSyncReplicas", [])
    return [each["brokerId"] for each in members if each["alive"]]
