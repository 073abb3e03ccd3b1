"""StoreService: the background work of one store.

The loops that follow the log (flushes, look-ahead, index) sleep until
messages are stored.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio

from rmq.store import flush
from rmq.store.cleanup_worker import clean_periodically
from rmq.store.compaction.worker import compact_periodically
from rmq.store.index_worker import QUIET_SIZE, follow_log
from rmq.store.message_store import MessageStore
from rmq.store.scrub_worker import scrub_periodically
from rmq.store.worker import Worker

ALLOCATE_INTERVAL_S = 0.05
"""Pause after an allocation ahead; the writer may have used all its blocks
meanwhile.
"""

CLAIM_INTERVAL_S = 1.0
DISK_CHECK_INTERVAL_S = 10.0


class StoreService:
    """Background work of one store; `run` it in a nursery."""

    def __init__(self, store: MessageStore) -> None:
        self.heal_blocks: Callable[[], Awaitable[None]] = trio.sleep_forever
        """Loop that gets the bytes of bad blocks; a pause ends it, too."""

        self._store = store
        self._new_messages = trio.Event()
        self._look_ahead_wanted = trio.Event()
        self._index_lags = trio.Event()
        self._is_running = self._has_started = False
        self._claimed = 0
        """The number of the newest claim on the disk."""

        self._loops: trio.CancelScope | None = None
        self._rest: trio.Event | None = None
        """An event during a pause: set when no loop runs any more."""

        self._resume = trio.Event()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run every loop until cancelled; LogFailed if the log cannot be written."""
        self._is_running = True
        try:
            while True:
                while self._rest is not None:
                    self._rest.set()
                    await self._resume.wait()
                await self._run_loops(task_status)
        finally:
            self._is_running = False
            if self._rest is not None:
                self._rest.set()  # no other task sets it

    @asynccontextmanager
    async def pause(self) -> AsyncIterator[None]:
        """End all loops for the time of the block; they begin again after it."""
        assert self._rest is None, "one pause at a time"
        rest = self._rest = trio.Event()
        resume = self._resume = trio.Event()
        try:
            if self._is_running:
                if self._loops is not None:
                    self._loops.cancel()
                await rest.wait()
            yield
        finally:
            self._rest = None
            resume.set()

    async def _run_loops(self, task_status: trio.TaskStatus[None]) -> None:
        store, wait = self._store, self._wait_for_messages
        async with trio.open_nursery() as nursery:
            self._loops = nursery.cancel_scope
            store.signals.new_messages = self._signal_new_messages
            if store.log.writer is not None:
                await nursery.start(flush.write_ring, store)
                nursery.start_soon(flush.prepare_ring, store.log.writer.ring, wait)
            elif store.config.is_sync_flush:
                await nursery.start(flush.flush_on_demand, store)
            if not store.config.is_sync_flush:
                nursery.start_soon(flush.flush_periodically, store, wait)
            nursery.start_soon(flush.flush_queues_periodically, store, wait)
            nursery.start_soon(self._look_ahead)
            nursery.start_soon(follow_log, store.index, wait, self._wait_for_lag)
            nursery.start_soon(self._watch_disk)
            nursery.start_soon(clean_periodically, store)
            nursery.start_soon(compact_periodically, store, wait)
            nursery.start_soon(self._flush_claim)
            nursery.start_soon(scrub_periodically, store, wait)
            nursery.start_soon(self._correct_entries)
            nursery.start_soon(self.heal_blocks)
            if store.timer.is_open:
                nursery.start_soon(flush.flush_timer_periodically, store)
            if not self._has_started:
                self._has_started = True
                task_status.started()

    def _signal_new_messages(self) -> None:
        self._new_messages.set()
        if self._store.log.wants_look_ahead:
            self._look_ahead_wanted.set()
        if self._store.index.lag_bytes >= QUIET_SIZE:
            self._index_lags.set()
        positions = self._store.positions
        if self._store.config.is_sync_flush and positions.dirty_size:
            positions.durable.request_advance()

    async def _wait_for_messages(self) -> None:
        if self._new_messages.is_set():
            self._new_messages = trio.Event()
        await self._new_messages.wait()

    async def _wait_for_lag(self) -> None:
        """Return when the index should be built."""
        self._index_lags = trio.Event()
        if self._store.index.lag_bytes < QUIET_SIZE:
            await self._index_lags.wait()

    async def _look_ahead(self) -> None:
        """Prepare blocks and files ahead of the writer.

        Known in Java as `AllocateMappedFileService`.
        """
        log, worker = self._store.log, Worker()
        while True:
            if not log.wants_look_ahead:
                self._look_ahead_wanted = trio.Event()
                await self._look_ahead_wanted.wait()
            await worker.try_run("allocating ahead", log.allocate_ahead)
            await trio.sleep(ALLOCATE_INTERVAL_S)

    async def _correct_entries(self) -> None:
        """Write queue entries again that readers have found wrong."""
        entries, worker = self._store.wrong_entries, Worker()
        while True:
            found = trio.Event()
            entries.on_found = found.set
            if not entries.has_found:
                await found.wait()
            await worker.try_run("correcting a queue entry", entries.correct_next)

    async def _flush_claim(self) -> None:
        """Write the claim to the disk while it changes.

        One fdatasync for each flush of the log would cost 2 ms.
        """
        store, worker = self._store, Worker()
        while True:
            store.claim.update(store.log.end_offset)
            if store.claim.store_number != self._claimed:
                self._claimed = store.claim.store_number
                await worker.try_run(
                    "writing the claim, or sealing the log", self._write_claim
                )
            elif not store.positions.dirty_size:
                await self._wait_for_messages()
            await trio.sleep(CLAIM_INTERVAL_S)

    def _write_claim(self) -> None:
        """Write the claim to the disk, and seal the blocks that are durable."""
        self._store.claim_file.flush()
        self._store.digests.update()

    async def _watch_disk(self) -> None:
        worker = Worker()
        while True:
            await worker.try_run("checking the disk", self._store.disk.update_refusal)
            self._store.reserve.open_reserve()
            await trio.sleep(DISK_CHECK_INTERVAL_S)
