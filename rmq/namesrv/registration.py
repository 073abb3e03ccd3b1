"""Registration: the report of a broker, and its entry in the route table."""

from typing import Any, NamedTuple

import msgspec

from rmq.protocol.bodies.data_version import DataVersion
from rmq.protocol.bodies.topics import TopicConfig
from rmq.remoting.connection import Connection

MASTER_ID = 0
DEFAULT_TIMEOUT_MS = 120_000


class Caller(NamedTuple):
    """The sender of a request: its host, and whether it may send requests for any
    broker.
    """

    host: str = ""
    is_trusted: bool = False


class LiveBroker(msgspec.Struct):
    """A registration that has not expired; it belongs to the host that sent it."""

    broker_name: str
    last_update_ms: int
    timeout_ms: int
    data_version: DataVersion
    connection: Connection | None
    ha_address: str
    host: str = ""


class BrokerGroup(msgspec.Struct):
    """A master with its slaves: one broker name."""

    cluster: str
    addresses: dict[int, str] = msgspec.field(default_factory=dict)
    hosts: dict[str, str] = msgspec.field(default_factory=dict)
    """The host that registered each address, by address."""

    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def least_id(self) -> int:
        """The smallest id; its broker acts as master if there is no master."""
        return min(self.addresses)

    def set_address(self, broker_id: int, address: str, host: str) -> None:
        """Store an address under this id, and remove it from any other id."""
        self.remove(address)
        before = self.addresses.get(broker_id)
        if before is not None:
            self.remove(before)
        self.addresses[broker_id] = address
        self.hosts[address] = host

    def remove(self, address: str) -> None:
        """Remove an address, if the group has it."""
        for broker_id in [i for i, a in self.addresses.items() if a == address]:
            del self.addresses[broker_id]
        self.hosts.pop(address, None)


class Registration(NamedTuple):
    """The report of a broker about itself."""

    cluster: str
    address: str
    broker_name: str
    broker_id: int
    ha_address: str
    topics: dict[str, TopicConfig]
    data_version: DataVersion
    timeout_ms: int = DEFAULT_TIMEOUT_MS
    enable_acting_master: bool | None = None
    zone_name: str | None = None
    mappings: dict[str, Any] | None = None
    caller: Caller = Caller()
    deleted_topics: tuple[str, ...] = ()


class LeastIdChange(NamedTuple):
    """The group has a new smallest id; the other members can be notified."""

    group: BrokerGroup
    broker_name: str
    offline_address: str | None
    ha_address: str | None


class Registered(NamedTuple):
    """The answer to a slave: the address of its master."""

    master_address: str | None = None
    ha_address: str | None = None
