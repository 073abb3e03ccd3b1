"""StoreService: the loops that flush, allocate and wait; trio meets the store only
here.

Blocking calls run in worker threads, one flush at a time.  Under SYNC_FLUSH a put wakes
the flush loop: while one fdatasync runs the next puts collect, and one more covers them
all.
"""

import heapq
import itertools
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import trio

from rmq.errors import DiskFull, StoreError
from rmq.store.consume_queues import PAGE_SIZE
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

ALLOCATE_INTERVAL_S = 0.05
INDEX_INTERVAL_S = 0.05
INDEX_RETRY_S = 10.0
FIRST_CLEANING_S = 60.0
QUEUES_AT_ONCE = 200
"""Queues that are cleaned before anybody else has a turn."""

DISK_CHECK_INTERVAL_S = 10.0
CHECKPOINT_DISTANCE = 128 << 20
"""Bytes of log after which the checkpoint moves: what a start after a crash reads."""

WAITER_LIMIT = 100_000
"""Callers of `wait_durable`; each is a request that holds memory elsewhere too."""


class StoreService:
    """Background work of one store; `run` it in a nursery."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._config = store.config
        self._flush_limiter = trio.CapacityLimiter(1)
        self._side_limiter = trio.CapacityLimiter(1)
        self._index_limiter = trio.CapacityLimiter(1)
        self._flush_wanted = trio.Event()
        self._waiters: list[tuple[int, int, trio.Event]] = []
        self._abandoned: set[int] = set()
        self._sequence = itertools.count()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run every loop until cancelled; a failed flush ends them with its error."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._release_waiters)
            if self._config.is_sync_flush:
                await nursery.start(self._flush_on_demand)
            else:
                nursery.start_soon(self._flush_periodically)
            nursery.start_soon(self._flush_queues)
            nursery.start_soon(self._look_ahead)
            nursery.start_soon(self._build_index)
            nursery.start_soon(self._watch_disk)
            nursery.start_soon(self._clean)
            task_status.started()

    async def wait_durable(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the log is durable up to `offset`; False after the time-out."""
        if self._store.durable.value >= offset:
            return True
        if len(self._waiters) >= WAITER_LIMIT and not self._forget_abandoned():
            return False
        event = trio.Event()
        number = next(self._sequence)
        heapq.heappush(self._waiters, (offset, number, event))
        self._want_flush()
        try:
            with trio.move_on_after(timeout_ms / 1000):
                await event.wait()
        finally:
            if not event.is_set():
                self._abandoned.add(number)
        return self._store.durable.value >= offset

    def _forget_abandoned(self) -> bool:
        """Make room by dropping those who timed out, once they are half of all."""
        if 2 * len(self._abandoned) < len(self._waiters):
            return False
        self._waiters = [w for w in self._waiters if w[1] not in self._abandoned]
        self._abandoned.clear()
        heapq.heapify(self._waiters)
        return True

    def _want_flush(self) -> None:
        self._flush_wanted.set()

    async def _release_waiters(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        watermark = self._store.durable
        descriptor = watermark.subscribe()
        try:
            task_status.started()
            while True:
                await trio.lowlevel.wait_readable(descriptor)
                _drain(descriptor)
                while self._waiters and self._waiters[0][0] <= watermark.value:
                    _, number, event = heapq.heappop(self._waiters)
                    self._abandoned.discard(number)
                    event.set()
        finally:
            watermark.unsubscribe(descriptor)

    async def _flush_on_demand(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        self._store.on_flush_wanted = self._want_flush
        task_status.started()
        while True:
            await self._flush_wanted.wait()
            self._flush_wanted = trio.Event()
            await self._in_thread(self._store.flush_log, self._flush_limiter)

    async def _flush_periodically(self) -> None:
        config = self._config
        least = config.flush_least_pages * PAGE_SIZE
        thorough_s = config.flush_thorough_interval_ms / 1000
        last = trio.current_time()
        while True:
            with trio.move_on_after(config.flush_interval_ms / 1000):
                await self._flush_wanted.wait()
            wanted, self._flush_wanted = self._flush_wanted.is_set(), trio.Event()
            due = trio.current_time() - last >= thorough_s
            dirty = self._store.dirty_log_size
            if dirty and (wanted or due or dirty >= least):
                await self._in_thread(self._store.flush_log, self._flush_limiter)
                last = trio.current_time()

    async def _flush_queues(self) -> None:
        config = self._config
        thorough_s = config.queue_flush_thorough_interval_ms / 1000
        last = trio.current_time()
        while True:
            await trio.sleep(config.queue_flush_interval_ms / 1000)
            due = trio.current_time() - last >= thorough_s
            due |= self._store.checkpoint_distance >= CHECKPOINT_DISTANCE
            if due:
                last = trio.current_time()

            def flush(thorough: bool = due) -> None:
                self._store.flush_queues(thorough=thorough)
                self._store.save_checkpoint()

            await self._in_thread(flush, self._flush_limiter)

    async def _look_ahead(self) -> None:
        while True:
            await trio.sleep(ALLOCATE_INTERVAL_S)
            if self._store.wants_look_ahead:
                with suppress(DiskFull):  # the writer meets it and refuses
                    await self._in_thread(
                        self._store.allocate_ahead, self._side_limiter
                    )

    async def _build_index(self) -> None:
        """Follow the log; what is further behind than allowed is done before sends."""
        store = self._store
        while True:
            lag = store.index_lag
            if not lag:
                await trio.sleep(INDEX_INTERVAL_S)
                continue
            try:
                if lag > self._config.index_max_lag:
                    store.build_index()
                    await trio.lowlevel.checkpoint()
                else:
                    await self._in_thread(store.build_index, self._index_limiter)
            except (OSError, StoreError) as error:
                logger.error("the index waits, queries read the log: %s", error)
                await trio.sleep(INDEX_RETRY_S)

    async def _clean(self) -> None:
        await trio.sleep(FIRST_CLEANING_S)
        while True:
            try:
                await self.clean()
            except OSError as error:
                logger.error("deleting old files failed: %s", error)
            await trio.sleep(self._config.clean_interval_ms / 1000)

    async def clean(self) -> None:
        """Delete what may go now: log files, then queue and index files."""
        cleaner = self._store.cleaner
        expiry_ms = cleaner.expiry_ms(self._store.used_ratio())
        if expiry_ms is not None:
            for _ in range(self._config.delete_batch):
                file = cleaner.take_log_file(expiry_ms)
                if file is None:
                    break
                await self._in_thread(
                    partial(cleaner.discard, [file]), self._side_limiter
                )
                await trio.sleep(self._config.delete_pause_ms / 1000)
        for number, paths in enumerate(cleaner.clean_queues()):
            if paths:
                await self._in_thread(partial(_unlink, paths), self._side_limiter)
            elif number % QUEUES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        index_files = cleaner.take_index_files()
        await self._in_thread(partial(cleaner.discard, index_files), self._side_limiter)

    async def _watch_disk(self) -> None:
        while True:
            await self._in_thread(self._store.check_disk, self._side_limiter)
            await trio.sleep(DISK_CHECK_INTERVAL_S)

    async def _in_thread(
        self, work: Callable[[], None], limiter: trio.CapacityLimiter
    ) -> None:
        """Run to the end even if cancelled: a half-done flush helps nobody."""
        try:
            await trio.to_thread.run_sync(work, limiter=limiter)
        except OSError as error:
            reason = f"writing {error.filename or self._config.root} failed"
            self._store.fail(f"{reason}: {error.strerror}")
            raise StoreError(
                f"{reason}: {error.strerror}; nothing more is stored, and `abort` "
                "stays so that the next start checks the log"
            ) from error


def _unlink(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _drain(descriptor: int) -> None:
    """Reset an eventfd; somebody may have been faster."""
    try:
        os.eventfd_read(descriptor)
    except BlockingIOError:
        return
