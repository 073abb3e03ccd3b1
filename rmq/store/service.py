"""StoreService: the loops that flush, allocate and wait; trio meets the store only
here.

Blocking calls run in worker threads, one flush at a time.  Under SYNC_FLUSH one thread
flushes the log and does nothing else; a put demands it of the watermark, without trio.
While one fdatasync runs the next puts collect, and one more covers them all.  The loops
behind the log (look-ahead, index) sleep until something was stored.
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
from rmq.store.index import BUILD_SIZE
from rmq.store.message_store import MessageStore

logger = logging.getLogger(__name__)

ALLOCATE_INTERVAL_S = 0.05
INDEX_INTERVAL_S = 0.05
INDEX_RETRY_S = 10.0
FIRST_INDEXING_S = 1.0
"""After a crash much may be indexed anew: not while the broker starts."""
FIRST_CLEANING_S = 60.0
QUEUES_AT_ONCE = 200
"""Queues that are cleaned before anybody else has a turn."""

DISK_CHECK_INTERVAL_S = 10.0
CHECKPOINT_DISTANCE = 128 << 20
"""Bytes of log after which the checkpoint moves: what a start after a crash reads."""

SWEEP_INTERVAL_S = 0.02
"""Least pause between two looks for waiters whose time is over."""

WAITER_LIMIT = 100_000
"""Callers of `wait_durable`; each is a request that holds memory elsewhere too."""


class _Waiter:
    """A task that waits for the disk; None when it gave up."""

    __slots__ = ("deadline_s", "task")

    def __init__(self, task: trio.lowlevel.Task, deadline_s: float) -> None:
        self.task: trio.lowlevel.Task | None = task
        self.deadline_s = deadline_s


class StoreService:
    """Background work of one store; `run` it in a nursery."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._config = store.config
        self._is_sync = store.config.is_sync_flush
        self._flush_limiter = trio.CapacityLimiter(1)
        self._side_limiter = trio.CapacityLimiter(1)
        self._index_limiter = trio.CapacityLimiter(1)
        self._commit_limiter = trio.CapacityLimiter(1)
        self._demand_limiter = trio.CapacityLimiter(1)
        self._flush_wanted = trio.Event()
        self._release_wanted = trio.Event()
        self._sweep_wanted = trio.Event()
        self._new_messages = trio.Event()
        self._waiters: list[tuple[int, int, _Waiter]] = []
        self._left_count = 0
        self._sequence = itertools.count()

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run every loop until cancelled; a failed flush ends them with its error."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._release_waiters)
            nursery.start_soon(self._dismiss_late_waiters)
            self._store.on_new_messages = self._note_new_messages
            if self._is_sync:
                await nursery.start(self._flush_on_demand)
            else:
                nursery.start_soon(self._flush_periodically)
            if self._config.uses_staging:
                nursery.start_soon(self._commit_periodically)
            nursery.start_soon(self._flush_queues)
            nursery.start_soon(self._look_ahead)
            nursery.start_soon(self._build_index)
            nursery.start_soon(self._watch_disk)
            nursery.start_soon(self._clean)
            task_status.started()

    def _note_new_messages(self) -> None:
        self._new_messages.set()
        if self._is_sync and self._store.dirty_log_size:
            self._store.durable.demand()

    async def wait_durable(self, offset: int, timeout_ms: int) -> bool:
        """Wait until the log is durable up to `offset`; False after the time-out."""
        durable = self._store.durable
        if durable.value >= offset:
            return True
        if len(self._waiters) >= WAITER_LIMIT and not self._forget_left():
            return False
        waiter = _Waiter(
            trio.lowlevel.current_task(), trio.current_time() + timeout_ms / 1000
        )
        heapq.heappush(self._waiters, (offset, next(self._sequence), waiter))
        self._flush_wanted.set()
        self._release_wanted.set()
        self._sweep_wanted.set()

        def leave(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._leave(waiter)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(leave)
        return durable.value >= offset

    def _leave(self, waiter: "_Waiter") -> None:
        waiter.task = None
        self._left_count += 1

    def _forget_left(self) -> bool:
        """Make room by dropping those who gave up, once they are half of all."""
        if 2 * self._left_count < len(self._waiters):
            return False
        self._waiters = [w for w in self._waiters if w[2].task is not None]
        self._left_count = 0
        heapq.heapify(self._waiters)
        return True

    async def _release_waiters(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        watermark = self._store.durable
        descriptor = watermark.subscribe()
        try:
            task_status.started()
            while True:
                if not self._waiters:
                    self._release_wanted = trio.Event()
                    await self._release_wanted.wait()
                await trio.lowlevel.wait_readable(descriptor)
                _drain(descriptor)
                durable, waiters = watermark.value, self._waiters
                while waiters and waiters[0][0] <= durable:
                    _, _, waiter = heapq.heappop(waiters)
                    if waiter.task is None:
                        self._left_count -= 1
                    else:
                        trio.lowlevel.reschedule(waiter.task)
        finally:
            watermark.unsubscribe(descriptor)

    async def _dismiss_late_waiters(self) -> None:
        """Wake those whose time is over; one clock for all, as a scope costs 13 us."""
        while True:
            deadlines = [
                waiter.deadline_s
                for _, _, waiter in self._waiters
                if waiter.task is not None
            ]
            if not deadlines:
                self._sweep_wanted = trio.Event()
                await self._sweep_wanted.wait()
                continue
            pause_s = min(deadlines) - trio.current_time()
            await trio.sleep(max(SWEEP_INTERVAL_S, pause_s))
            now_s = trio.current_time()
            for _, _, waiter in self._waiters:
                if waiter.task is not None and waiter.deadline_s <= now_s:
                    trio.lowlevel.reschedule(waiter.task)
                    self._leave(waiter)

    async def _flush_on_demand(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(
                self._in_thread, self._flush_as_demanded, self._demand_limiter
            )
            try:
                task_status.started()
                while True:  # tasks that wait in one turn of the loop are one group
                    await self._flush_wanted.wait()
                    self._flush_wanted = trio.Event()
                    self._store.durable.demand()
            finally:
                self._store.durable.end_demand()

    def _flush_as_demanded(self) -> None:
        """Flush as often as somebody waits for it; a thread of its own."""
        while self._store.durable.wait_for_demand():
            self._store.flush_log()

    async def _commit_periodically(self) -> None:
        config, store = self._config, self._store
        least = config.commit_least_pages * PAGE_SIZE
        thorough_s = config.commit_thorough_interval_ms / 1000
        last = trio.current_time()
        while True:
            await trio.sleep(config.commit_interval_ms / 1000)
            size = store.uncommitted_size
            due = trio.current_time() - last >= thorough_s
            if size and (due or size >= least):
                await self._in_thread(store.commit_log, self._commit_limiter)
                last = trio.current_time()

    async def _flush_periodically(self) -> None:
        config = self._config
        last = trio.current_time()
        while True:
            with trio.move_on_after(config.flush_interval_ms / 1000):
                await self._flush_wanted.wait()
            wanted, self._flush_wanted = self._flush_wanted.is_set(), trio.Event()
            thorough_s = config.flush_thorough_interval_ms / 1000
            due = trio.current_time() - last >= thorough_s
            dirty = self._store.dirty_log_size
            least = config.flush_least_pages * PAGE_SIZE
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
            if not self._store.wants_look_ahead:
                await self._wait_for_messages()
            await trio.sleep(ALLOCATE_INTERVAL_S)
            if self._store.wants_look_ahead:
                with suppress(DiskFull):  # the writer meets it and refuses
                    await self._in_thread(
                        self._store.allocate_ahead, self._side_limiter
                    )

    async def _build_index(self) -> None:
        """Follow the log; what is further behind than allowed is done before sends.

        A little is left to become more: a hand-over to the worker costs as much as
        the entries of hundreds of messages.
        """
        store = self._store
        await trio.sleep(FIRST_INDEXING_S)
        while True:
            if store.index_lag < BUILD_SIZE:
                if store.is_indexed:
                    await self._wait_for_messages()
                await trio.sleep(INDEX_INTERVAL_S)
            lag = store.index_lag
            if not lag:
                continue  # what was stored is not visible yet
            try:
                if lag > self._config.index_max_lag:
                    store.build_index()
                    await trio.lowlevel.checkpoint()
                else:
                    await self._in_thread(store.build_index, self._index_limiter)
            except (OSError, StoreError) as error:
                logger.error("the index waits, queries read the log: %s", error)
                await trio.sleep(INDEX_RETRY_S)

    async def _wait_for_messages(self) -> None:
        if self._new_messages.is_set():
            self._new_messages = trio.Event()
        await self._new_messages.wait()

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
