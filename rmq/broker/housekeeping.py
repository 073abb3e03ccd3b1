"""The broker's periodic duties: forget silent clients, save changed tables."""

from collections.abc import Sequence

import trio

from rmq.broker.clients import ConsumerTable, ProducerTable
from rmq.broker.tables.persist import JsonTable
from rmq.clock import Clock

SCAN_INTERVAL_S = 10.0
SAVE_INTERVAL_S = 0.2
"""Topics and groups change rarely; a change reaches the disk within this time."""

PAUSE_FACTOR = 20
"""Saving takes at most a twentieth of the time."""


async def evict_idle_clients(
    producers: ProducerTable, consumers: ConsumerTable, clock: Clock, timeout_ms: int
) -> None:
    """Close the connections of clients whose heartbeats stopped; their groups hear it.

    Known in Java as `ClientHousekeepingService`.
    """
    while True:
        await trio.sleep(SCAN_INTERVAL_S)
        before = clock.now_ms() - timeout_ms
        for table in (producers, consumers):
            for _, connection, member in table.all():
                if member.last_heartbeat_ms < before:
                    connection.close("no heartbeat for too long")
                    producers.on_close(connection)
                    consumers.on_close(connection)


async def save_tables(tables: Sequence[JsonTable], interval_s: float) -> None:
    """Write changed tables in a worker thread, again and again.

    A table of many entries is written less often: its text is made in the loop.
    """
    took_s = 0.0
    while True:
        await trio.sleep(max(interval_s, took_s * PAUSE_FACTOR))
        began = trio.current_time()
        await save_now(tables)
        took_s = trio.current_time() - began


async def save_now(tables: Sequence[JsonTable]) -> None:
    """Write the tables that changed; one that counts as clean has been written."""
    for table in tables:
        if table.is_dirty:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(table.write, table.snapshot())
