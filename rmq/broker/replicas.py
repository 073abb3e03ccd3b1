"""Replicas: the replication of a broker, as plugins see it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rmq.cluster.replication import Replication
from rmq.store.message_store import MessageStore

if TYPE_CHECKING:
    from rmq.plugin.replicas import EpochStart, MasterLink, SlaveStatus


class Replicas:
    """Implements `rmq.plugin.replicas.Replicas`."""

    def __init__(self, replication: Replication, store: MessageStore) -> None:
        self._replication = replication
        self._store = store
        self.check_role = replication.refresh_role
        self.read_broker = replication.read_suggestion.broker_for
        self.escape = replication.escape
        self.ask_members = replication.ask_members
        self.lock_quorum = replication.lock_quorum

    @property
    def master_flushed_offset(self) -> int:
        """End of the log that the master had flushed; only tools show it."""
        return self._store.checkpoint.master_flushed_offset

    @master_flushed_offset.setter
    def master_flushed_offset(self, offset: int) -> None:
        self._store.checkpoint.master_flushed_offset = offset

    def slave_statuses(self) -> "Sequence[SlaveStatus]":
        """Return the slaves that are connected."""
        return self._replication.log_server.session_statuses()

    def recent_refusals(self) -> list[str]:
        """Return the reasons of recent refusals of slaves."""
        return self._replication.log_server.recent_refusals

    def expect_slave(self, host: str) -> None:
        """Let a host that has asked for the HA address follow before it registers."""
        self._replication.log_server.expect_slave(host)

    def link(self) -> "MasterLink | None":
        """Return the connection to the master; None on a master."""
        fetcher = self._replication.fetcher
        if fetcher is None:
            return None
        # imported on use: a master has no link
        from rmq.plugin.replicas import MasterLink

        return MasterLink(
            master=fetcher.master,
            is_following=fetcher.is_following,
            state=fetcher.state,
            last_read_ms=fetcher.last_read_ms,
            last_write_ms=fetcher.last_write_ms,
            end_offset=fetcher.end_offset,
            bytes_per_second=fetcher.rate.per_second(),
        )

    def copy_errors(self) -> dict[int, str]:
        """Return the errors of tables that were not copied from the master, by request
        code.
        """
        tables = self._replication.synchronizer.tables
        return {table.code: table.error for table in tables if table.error}

    def epoch_starts(self) -> "Sequence[EpochStart] | None":
        """Return the epochs of the log; None in a group without a controller."""
        control = self._replication.term_state
        return None if control is None else control.epochs.all_epochs()
