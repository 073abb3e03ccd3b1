"""The loop that deletes old files."""

import logging
from functools import partial

import trio

from rmq.store.message_store import MessageStore
from rmq.store.worker import Worker

logger = logging.getLogger(__name__)

FIRST_CLEANING_S = 60.0


async def clean_periodically(store: MessageStore) -> None:
    """Clean periodically, for the first time some minutes after the start."""
    await trio.sleep(FIRST_CLEANING_S)
    while True:
        try:
            await clean(store)
        except OSError as error:
            logger.error("cannot delete old files, will try again: %s", error)
        await trio.sleep(store.config.clean_interval_ms / 1000)


async def clean(store: MessageStore) -> None:
    """Delete all expired files: log files, then queue and index files."""
    cleaner, config, worker = store.cleaner, store.config, Worker()
    expiry_ms = cleaner.expiry_ms(store.disk.used_ratio())
    if expiry_ms is not None:
        for _ in range(config.delete_batch):
            file = cleaner.take_log_file(expiry_ms)
            if file is None:
                break
            store.claim.begin_at(store.log.min_offset)
            store.digests.forget_before(store.log.min_offset)
            await worker.run(store.claim_file.flush)
            await worker.run(partial(cleaner.discard, [file]))
            await trio.sleep(config.delete_pause_ms / 1000)
    for step in cleaner.clean_queues():
        await worker.run(step)
    await worker.run(partial(cleaner.discard, cleaner.take_index_files()))
