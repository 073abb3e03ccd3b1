"""The group of a broker as plugins see it: its role, its slaves, its master."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from rmq.protocol.command import Command
    from rmq.protocol.message import Message


class Role(Protocol):
    """The role of this broker in its group."""

    @property
    def is_master(self) -> bool:
        """Whether it is the master."""

    @property
    def is_appointed(self) -> bool:
        """Whether a controller names the master of this group."""

    @property
    def broker_id(self) -> int:
        """Its number in the group; 0 is the master."""

    def accept_master(self, address: str, ha_address: str) -> bool:
        """Return whether a master that comes back is the known one."""


class SlaveStatus(NamedTuple):
    """A slave that fetches from this broker."""

    address: str
    acknowledged_offset: int
    """End of the slave's log."""

    next_offset: int
    """Physical offset of the next bytes to send."""

    lag_bytes: int
    is_in_sync: bool
    """Whether the slave lacks only few bytes."""

    bytes_per_second: int


class EpochStart(Protocol):
    """An epoch of the log."""

    @property
    def number(self) -> int:
        """The number of the epoch."""

    @property
    def start(self) -> int:
        """Physical offset at which it began."""


class MasterLink(NamedTuple):
    """The connection of a slave to its master."""

    master: str
    is_following: bool
    state: str
    """Its state, for people."""

    last_read_ms: int
    last_write_ms: int
    end_offset: int
    bytes_per_second: int


class Escape(Protocol):
    """Other groups, to which an acting master sends messages."""

    @property
    def term(self) -> int:
        """The number of the term in which this broker acts as the master; else 0.

        Read all progress again in a new term: between two terms the master has changed
        it.
        """

    async def send(self, message: "Message") -> bool:
        """Store a message in its topic at another group; False if this failed."""


class Replicas(Protocol):
    """The replication of this broker.  Known in Java as `HAService`."""

    master_flushed_offset: int
    """On a slave: the offset up to which its master had flushed the log."""

    @property
    def escape(self) -> Escape | None:
        """None unless this slave may send messages to other groups."""

    @property
    def lock_quorum(self) -> int:
        """Number of brokers of the group that must lock a queue for a consumer."""

    async def ask_members(self, request: "Command") -> list["Command"]:
        """Send a request to the other brokers of the group; return their answers.

        Brokers that fail, or do not answer within a second, are missing.
        """

    def slave_statuses(self) -> Sequence[SlaveStatus]:
        """Return the slaves that are connected."""

    def recent_refusals(self) -> list[str]:
        """Return the reasons of recent refusals of slaves; the newest is the last."""

    def expect_slave(self, host: str) -> None:
        """Let a host that has asked for the HA address follow before it registers."""

    def link(self) -> MasterLink | None:
        """Return the connection to the master; None on a master."""

    def copy_errors(self) -> dict[int, str]:
        """Return the errors of tables that were not copied from the master, by request
        code.
        """

    def epoch_starts(self) -> Sequence[EpochStart] | None:
        """Return the epochs of the log; None in a group without a controller."""

    def check_role(self) -> None:
        """Ask the controller soon who is the master."""

    def read_broker(self, broker_id: int) -> int:
        """Return the number of the broker from which a group that lags far should read.

        `broker_id` is the configured id of the slave for consumers.
        """
