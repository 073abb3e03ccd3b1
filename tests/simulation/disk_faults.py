"""Faults of a disk that only the rest of the group can mend, each from begin to end.

The other brokers have all of the log when a fault begins.  At its end the group has to
have healed it; else the seed fails.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import trio

from rmq.core.errors import RmqError
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.controller import ElectMasterRequestHeader
from tests.simulation.clients import CLIENTS, Client, read_all
from tests.simulation.damage import choose_old_rot, confirmed_of, write_durably
from tests.simulation.world import CONTROLLER, CONTROLLER_PORT, GROUP, Machine, World

WHOLE_TRIES, WHOLE_PAUSE_S = 400, 0.05
"""How long a fault waits for a group that is whole; else it does not happen."""

HEALED_S = 90.0
EXPIRED_S = 15.0
ELECTED_S = 150.0
"""More than the time in which a controller elects no broker with a short log."""

DISCARDS, UNCLEAN = "rmq.replicaMayDiscard", "enableElectUncleanMaster"
"""An operator sets them to let a broker outside of the set be the master."""

LOST_FILES = "commitlog/*", "claim", "checkpoint"
"""Files of which a disk forgets the newest writes."""

Snapshot = dict[str, bytes]


class DiskFaults:
    """Faults of the disks of a world."""

    def __init__(
        self,
        world: World,
        client: Client,
        note: Callable[[str], None],
        mend: Callable[[], None],
    ) -> None:
        """`mend` heals the network and starts all nodes."""
        self._world, self._client = world, client
        self._note, self._mend = note, mend
        self._older: dict[str, list[Snapshot]] = {}

    def remember(self) -> None:
        """Keep what the disks have now: a disk that lies may go back to it."""
        for machine in self._world.brokers:
            if machine.is_up:
                found = snapshot_of(machine.folder)
                self._older.setdefault(machine.name, []).append(found)

    async def _is_whole(self) -> bool:
        self._mend()
        for _ in range(WHOLE_TRIES):
            if self._world.is_whole():
                break
            await trio.sleep(WHOLE_PAUSE_S)
        return self._world.is_whole()

    def _others(self, machine: Machine) -> list[Machine]:
        return [each for each in self._world.brokers if each is not machine]

    def _kill_all(self) -> None:
        for each in self._world.brokers:
            if each.is_up:
                each.kill()

    # -- a bit that only a digest covers

    async def rot_old(self, machine: Machine, chance: random.Random) -> None:
        """Flip a bit of an old message where the format has no checksum.

        Readers of this broker get the message right, or an error.  Sometimes the other
        brokers have a wrong bit in the same block, and no digest that shows it.
        """
        if not await self._is_whole():
            return
        self._kill_all()
        rot = choose_old_rot(machine.folder, chance)
        if rot is None:
            self._mend()
            return
        right = (machine.folder / rot.name).read_bytes()
        rot.flip(machine.folder)
        self._note(f"{rot.name} of {machine.name}: bit {rot.bit} at {rot.at}")
        if chance.random() < 0.4:
            await self._ask_wrong_peers(machine, rot.name, chance)
            rot.undo(machine.folder)
        self._mend()
        with trio.move_on_after(HEALED_S):
            while (machine.folder / rot.name).read_bytes() != right:
                with suppress(RmqError):
                    await read_all(self._client, machine.address)
                await trio.sleep(0.5)
        is_right = (machine.folder / rot.name).read_bytes() == right
        assert is_right, f"{rot.name} of {machine.name} has not healed"

    async def _ask_wrong_peers(
        self, machine: Machine, name: str, chance: random.Random
    ) -> None:
        """Let a broker look for bytes that the other ones have wrong; kill all."""
        others = self._others(machine)
        rots = [choose_old_rot(each.folder, chance, name) for each in others]
        for each, rot in zip(others, rots, strict=True):
            if rot is not None:
                rot.flip(each.folder)
            remove_digests(each.folder)
        self._mend()
        network = self._world.network
        for each in others:  # without a digest they serve what they have
            network.cut(each.address, CLIENTS)
        for _ in range(10):
            with suppress(RmqError):
                await read_all(self._client, machine.address)
            await trio.sleep(0.5)
        self._kill_all()
        network.heal()
        for each, rot in zip(others, rots, strict=True):
            if rot is not None:
                rot.undo(each.folder)
            remove_digests(each.folder)

    # -- a disk that has confirmed what it did not write

    async def lie(self, machine: Machine, chance: random.Random) -> None:
        """Cut the power of a machine whose disk has lost the newest writes of the log.

        Its claim is as old as its log.  Sometimes the other brokers stay away until the
        controller has no choice; then an operator makes one of them the master again.
        """
        older = self._older.get(machine.name, [])
        if not older or not await self._is_whole():
            return
        snapshot = chance.choice(older)
        if not is_begin(snapshot, snapshot_of(machine.folder)):
            return
        others = self._others(machine)
        are_away = chance.random() < 0.5
        if are_away:
            for each in others:
                each.kill()
            # what only the lost claim calls confirmed looks like unconfirmed bytes
            confirmed = confirmed_of(machine.folder)
            are_away = all(confirmed_of(each.folder) >= confirmed for each in others)
        machine.cut_power()
        restore(machine.folder, snapshot)
        self._note(f"the disk of {machine.name} has an older log")
        if are_away:
            await self._elect_again(machine, chance.choice(others))
            return
        for each in self._world.brokers:
            if not each.is_up:
                each.start()

    async def _elect_again(self, machine: Machine, whole: Machine) -> None:
        """Let the controller elect a damaged broker, without messages for it, and then
        a whole one, which an operator names.
        """
        network = self._world.network
        for way in (machine.address, CLIENTS), (CLIENTS, machine.address):
            network.cut(*way)
        machine.start()
        await trio.sleep(EXPIRED_S)  # until then the controller names the old master
        is_elected = await self._await_master(machine)
        self._note(f"{machine.name} is {'' if is_elected else 'not '}elected")
        for each in self._others(machine):
            each.start()
        await trio.sleep(15)
        names = self._world.names
        for node, setting in (names, UNCLEAN), (machine, DISCARDS):
            node.kill()  # the epoch of the machine has no messages of clients
            node.settings = {setting: "true"}
        names.start()
        for _ in range(40):
            await self._elect(whole)
            if await self._await_master(whole, 2):
                break
        network.heal()
        machine.start()
        is_whole = await self._is_whole()
        self._note(f"{whole.name} is the master; the group is whole: {is_whole}")
        names.settings = machine.settings = {}
        names.kill()
        names.start()

    async def _await_master(self, machine: Machine, limit_s: float = ELECTED_S) -> bool:
        address = ""
        with trio.move_on_after(limit_s):
            while not address.startswith(machine.address):
                await trio.sleep(0.5)
                address = (await self._client.state()).get("masterAddress") or ""
        return address.startswith(machine.address)

    async def _elect(self, machine: Machine) -> None:
        state = await self._client.state()
        kinds = "inSyncReplicas", "notInSyncReplicas"
        for each in [each for kind in kinds for each in state.get(kind, [])]:
            if not each["brokerAddress"].startswith(machine.address):
                continue
            header = ElectMasterRequestHeader(
                broker_name=GROUP, broker_id=each["brokerId"], designate_elect=True
            )
            request = Command.request(RequestCode.CONTROLLER_ELECT_MASTER, header)
            with suppress(RmqError):
                await self._client.ask(f"{CONTROLLER}:{CONTROLLER_PORT}", request)


def snapshot_of(folder: Path) -> Snapshot:
    """Return the files whose newest writes a disk may lose."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for pattern in LOST_FILES
        for path in sorted(folder.glob(pattern))
    }


def is_begin(older: Snapshot, newer: Snapshot) -> bool:
    """Return whether a log is the beginning of another one."""
    return all(
        newer.get(name, b"").startswith(data.rstrip(b"\0"))
        for name, data in older.items()
        if name.startswith("commitlog")
    )


def restore(folder: Path, snapshot: Snapshot) -> None:
    """Let a disk have these files only."""
    for pattern in LOST_FILES:
        for path in folder.glob(pattern):
            path.unlink()
    for name, data in snapshot.items():
        write_durably(folder / name, data)


def remove_digests(folder: Path) -> None:
    """Remove the digests of all log files."""
    for path in folder.glob("digest/*"):
        path.unlink()
