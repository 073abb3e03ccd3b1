"""Heal: replaces the damaged bytes of a stopped store by another broker's.

A broker of a group does the same at its start. Here the user names the peer.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from rmq.cluster.config import ReplicationConfig
from rmq.cluster.epochs import EpochFile
from rmq.cluster.healing import LogHealer
from rmq.cluster.identity import GroupPlace
from rmq.config.option import build
from rmq.core.clock import SystemClock
from rmq.core.errors import StoreError
from rmq.store.message_store import MessageStore
from rmq.tools.repair import NO_HOST, config_of
from rmq.tools.store_files import StoreFiles

LIMIT_S: Final = 20.0
"""Time limit for the next bytes of a peer."""


class GivenPeer:
    """The broker that the user names, by the address of its log."""

    def __init__(self, ha_address: str) -> None:
        self._ha_address = ha_address

    async def find_addresses(self) -> list[str]:
        """Return its address."""
        return [self._ha_address]

    async def find_log_address(self, address: str) -> str:
        """Return the address at which the broker serves its log."""
        return address


def heal(store: StoreFiles, values: Mapping[str, str], ha_address: str) -> list[str]:
    """Heal the log; return sentences. StoreError if the peer lacks some of the
    bytes.
    """
    config = config_of(store, values)
    path = store.root / "epochFileCheckpoint"
    has_epochs = bool(EpochFile(path).all_epochs())
    healer = LogHealer(
        build(ReplicationConfig, values),
        config,
        GivenPeer(ha_address),
        None,
        place=GroupPlace(1, path) if has_epochs else None,
    )

    opening = partial(
        MessageStore.open, config, clock=SystemClock(), store_host=NO_HOST
    )
    opened = trio.run(healer.heal, opening, LIMIT_S)
    if opened is None:
        raise StoreError(healer.problem or f"{ha_address} sent nothing in time")
    try:
        lines = opened.recovery.lines()
    finally:
        opened.close()
    return [*healer.healed, *lines, f"{store.root}: the log is whole"]
