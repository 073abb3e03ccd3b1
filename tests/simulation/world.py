"""The machines of a simulation, and the nodes on them.

A node is what `rmq broker` or `rmq namesrv` runs, unchanged.  After a kill what is left
of its tasks ends without network, in a folder that nobody reads: the next start has a
copy of what the disk had at the moment of the kill.
"""

import ctypes
import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from rmq.broker import broker
from rmq.cluster import identity
from rmq.config.broker import BrokerConfig
from rmq.config.option import build
from rmq.core.clock import SystemClock
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.node.broker import run_broker
from rmq.node.name_server import run_name_server
from rmq.node.node import Node
from rmq.plugin.registry import PluginSet
from rmq.remoting import server
from rmq.store import claim
from rmq.store.config import StoreConfig
from rmq.store.damage import LogDamaged
from tests.simulation.disks import Disks
from tests.simulation.network import MACHINE, Network

GROUP = "group"
NAMES_PORT, CONTROLLER_PORT, BROKER_PORT = 9876, 9878, 10911
CONTROLLER, OPERATOR = "10.0.0.1", "10.0.0.9"
SERVERS = {
    "listenPort": str(NAMES_PORT),
    "enableControllerInNamesrv": "true",
    "rmq.controller.listenPort": str(CONTROLLER_PORT),
    "rmq.controller.address": f"{CONTROLLER}:{CONTROLLER_PORT}",
    "bindAddress": CONTROLLER,
    "rmq.controller.adminFrom": OPERATOR,
}
BROKERS = {
    "brokerName": GROUP,
    "namesrvAddr": f"{CONTROLLER}:{NAMES_PORT}",
    "controllerAddr": f"{CONTROLLER}:{CONTROLLER_PORT}",
    "enableControllerMode": "true",
    "listenPort": str(BROKER_PORT),
    "mappedFileSizeCommitLog": str(1 << 16),
    "mappedFileSizeConsumeQueue": "4000",
    "maxMessageSize": "8192",
    "rmq.tailRingBytes": str(1 << 17),
    "maxIndexNum": "1000",
    "timerWheelEnable": "false",
    "diskSpaceWarningLevelRatio": "100",
    "slaveReadEnable": "true",
}


class Date(SystemClock):
    """A machine's clock: all have one steady time, each has its own date."""

    offset_ms = 0

    def now_ms(self) -> int:
        """Return what this machine believes."""
        return super().now_ms() + self.offset_ms


class Machine:
    """One address, one disk, and at most one node."""

    def __init__(self, world: "World", number: int, name: str) -> None:
        self.name, self.address = name, f"10.0.0.{number}"
        self._world = world
        self._folders = (world.root / name / str(life) for life in itertools.count())
        self._boots = itertools.count()
        self._boot = b""
        self.date = Date()
        self.folder = next(self._folders)
        self.folder.mkdir(parents=True)
        self.node: Node | None = None
        self.settings: dict[str, str] = {}
        """Settings of the next nodes of this machine alone."""

        self._scope = trio.CancelScope()
        self._ended = trio.Event()
        self._ended.set()
        self.boot()

    def boot(self) -> None:
        """Let the kernel begin again."""
        self._boot = b"boot %d of %s\n" % (next(self._boots), self.name.encode())

    @property
    def is_up(self) -> bool:
        return not self._ended.is_set()

    def start(self) -> None:
        """Start the node."""
        assert not self.is_up, f"{self.name} runs"
        self._ended, self._scope = trio.Event(), trio.CancelScope()
        self._world.network.begin(self.address)
        self._world.nursery.start_soon(self._live, self._scope, self._ended)

    async def _live(self, scope: trio.CancelScope, ended: trio.Event) -> None:
        MACHINE.set(self.address)
        (self._world.root / f"{self.name}.boot").write_bytes(self._boot)
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    run = self._server() if self.name == "names" else self._broker()
                    node = await nursery.start(run)
                    if not scope.cancel_called:
                        self.node = node
        except BaseException as error:
            if refusal := self._refusal_in(error):
                self._world.note(f"{self.name}: {refusal}")
            elif not scope.cancel_called:
                self._world.note(f"{self.name} ended: {type(error).__name__}")
                raise
        finally:
            if self._scope is scope:
                self.node = None
            ended.set()

    @staticmethod
    def _refusal_in(error: BaseException) -> LogDamaged | None:
        """Return the error of a broker that has found its log damaged, if it is one."""
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        return error if isinstance(error, LogDamaged) else None

    def _server(self) -> Callable[..., object]:
        values = (
            SERVERS
            | self.settings
            | {
                "kvConfigPath": str(self.folder / "kvConfig.json"),
                "controllerStorePath": str(self.folder),
            }
        )
        configs = build(NamesrvConfig, values), build(NamesrvListenConfig, values)
        return partial(run_name_server, *configs, values=values, clock=self.date)

    def _broker(self) -> Callable[..., object]:
        values = BROKERS | self._world.settings | self.settings | {
            "storePathRootDir": str(self.folder),
            "brokerIP1": self.address,
            "brokerIP2": self.address,
            "bindAddress": self.address,
        }  # fmt: skip
        configs = build(BrokerConfig, values), build(StoreConfig, values)
        plugins = PluginSet()
        plugins.load(configs[0].plugins_disabled)
        return partial(
            run_broker,
            *configs,
            plugins=plugins,
            values=values,
            clock=self.date,
        )

    async def stop(self) -> None:
        """Stop the node in order."""
        if self.node is None or self.node.broker is None:
            self._scope.cancel()
        else:
            self.node.stop()
        with trio.CancelScope(shield=True):  # the time of disturbances may be over
            await self._ended.wait()
        self._world.network.end(self.address, is_seen=True)

    def kill(self) -> None:
        """Kill -9: the kernel ends its connections, and keeps what it wrote."""
        self._die(self._world.disks.kill, is_seen=True)

    def cut_power(self) -> None:
        """Nobody hears of it; what was not synced may be lost."""
        cut = partial(self._world.disks.cut_power, chance=self._world.chance)
        self._die(cut, is_seen=False)
        self.boot()

    def _die(self, leave: Callable[[Path, Path], None], *, is_seen: bool) -> None:
        folder, self.folder = self.folder, next(self._folders)
        leave(folder, self.folder)
        self._world.network.end(self.address, is_seen=is_seen)
        self._scope.cancel()
        self._scope, self._ended, ended = trio.CancelScope(), trio.Event(), self._ended
        self._ended.set()
        self.node = None
        self._world.nursery.start_soon(self._bury, folder, ended)

    async def _bury(self, folder: Path, ended: trio.Event) -> None:
        await ended.wait()
        self._world.disks.discard(folder)


class World:
    """All machines, their network and their disks."""

    def __init__(
        self,
        library: ctypes.CDLL,
        root: Path,
        seed: int,
        brokers: int,
        settings: dict[str, str],
        note: Callable[[str], None],
    ) -> None:
        self.root, self.settings, self.note = root, settings, note
        self.chance = random.Random(f"world {seed}")
        self.network = Network(library, random.Random(f"network {seed}"))
        self.disks = Disks(library, root)
        self.nursery: trio.Nursery
        self.names = Machine(self, 1, "names")
        self.brokers = [
            Machine(self, 2 + each, f"broker-{'abc'[each]}") for each in range(brokers)
        ]

    @property
    def machines(self) -> list[Machine]:
        return [self.names, *self.brokers]

    def _boot_source(self) -> Path:
        """Return the file with the boot id of the machine whose task runs."""
        [name] = [each.name for each in self.machines if each.address == MACHINE.get()]
        return self.root / f"{name}.boot"

    def is_whole(self) -> bool:
        """Whether one broker is the master, and all others have its log and are
        connected to it: until then the master shows no record.
        """
        brokers = [each.node.broker for each in self.brokers if each.node is not None]
        contexts = [each.context for each in brokers if each is not None]
        controls = [each.replication.term_state for each in contexts]
        groups = [each.sync_set for each in controls if each and each.sync_set]
        if len(contexts) < len(self.brokers) or len(groups) != 1:
            return False
        replicas = [each.replication.fetcher for each in contexts]
        return (
            len({each.store.log.end_offset for each in contexts}) == 1
            and all(each is None or each.is_following for each in replicas)
            and len(groups[0].members) == len(contexts)
            and groups[0].requested is None
            and not groups[0].offline_brokers
        )

    def broken_positions(self) -> Iterator[str]:
        """Yield the rules of `LogPositions` that an open store breaks."""
        for machine in self.brokers:
            broker = None if machine.node is None else machine.node.broker
            store = None if broker is None else broker.context.store
            if store is not None and store.durability.is_open:
                for broken in store.positions.broken_invariants():
                    yield f"{machine.name}: {broken}"

    async def run(self, main: Callable[[], object]) -> None:
        """Have everything run while `main` does."""
        outside = trio.open_tcp_stream, server.open_listener, broker.open_listener
        read_boot_id = claim.read_boot_id
        claim.read_boot_id = lambda: read_boot_id(self._boot_source())
        boot = identity.Boot.__init__
        identity.Boot.__init__ = lambda own, path: boot(own, path, self._boot_source())
        trio.open_tcp_stream = self.network.connect
        server.open_listener = broker.open_listener = self.network.listen
        try:
            async with trio.open_nursery() as self.nursery:
                await self.nursery.start(self.network.run)
                for machine in self.machines:
                    machine.start()
                await main()
                for machine in self.machines[::-1]:
                    if machine.is_up:
                        await machine.stop()
                self.nursery.cancel_scope.cancel()
        finally:
            claim.read_boot_id = read_boot_id
            trio.open_tcp_stream, server.open_listener, broker.open_listener = outside
