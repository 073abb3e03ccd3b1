"""Node: the servers of one process."""

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

import msgspec
import trio

from rmq.core.garbage import exempt_start

if TYPE_CHECKING:
    from rmq.broker.broker import Broker
    from rmq.controller.server import Controller
    from rmq.namesrv.server import NameServer
    from rmq.remoting.server import RemotingServer

SWITCH_INTERVAL_S = 0.0005
"""A worker thread that waits for the GIL gets it after this time (Python: 5 ms)."""


class Node(msgspec.Struct):
    """The servers of this process."""

    server: "RemotingServer"
    name_server: "NameServer | None"
    broker: "Broker | None"
    name_servers: tuple[str, ...]
    finished: trio.Event = msgspec.field(default_factory=trio.Event)
    is_stopping: bool = False
    http_port: int = 0
    """Port of metrics and health; 0 if they are not served."""
    console_port: int = 0
    """Port of the console; 0 if it is not served."""

    console_address: str = ""
    """Address for browsers, such as http://127.0.0.1:10920; empty without a console."""
    controller: "Controller | None" = None

    @property
    def address(self) -> str:
        """The address advertised to clients."""
        assert self.broker is not None
        return self.broker.advertised.address

    def configs(self) -> tuple[object, ...]:
        """The live configurations: of name server, broker, store, plugins."""
        configs: tuple[object, ...] = ()
        if self.name_server is not None:
            configs += (self.name_server.config,)
        if self.broker is not None:
            configs += self.broker.context.configs()
        if self.controller is not None:
            configs += (self.controller.config,)
        return configs

    def config_changed(self, keys: Collection[str]) -> None:
        """Let all parts use the new values of these keys."""
        assert keys, "nothing has changed"
        if self.name_server is not None:
            self.name_server.config_changed()
        if self.broker is not None:
            self.broker.context.config_changed(keys)

    def stop(self) -> None:
        """Request a clean shutdown of the broker."""
        assert self.broker is not None
        self.is_stopping = True
        self.broker.stop()


def prepare_process(*, after_another: bool = False) -> None:
    """Set the process up for serving, after a start that may follow another one."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    exempt_start(after_another=after_another)
