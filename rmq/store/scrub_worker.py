"""The loop that compares the log with its digests."""

import logging
from collections.abc import Awaitable, Callable

import trio

from rmq.store.message_store import MessageStore
from rmq.store.scrub import Part, Scrub, pause_s
from rmq.store.worker import Worker

logger = logging.getLogger(__name__)

PAUSE_S = 60.0
"""Pause if no block was due."""


async def scrub_periodically(
    store: MessageStore, wait_for_messages: Callable[[], Awaitable[None]]
) -> None:
    """Read part after part until cancelled."""
    config, scrub, worker = store.config, store.scrub, Worker()
    if not (config.has_log_digests and config.scrub_days):
        return
    was_empty = False
    while True:
        part = await _read_part(scrub, worker)
        if part is not None and part.size:
            total = store.log.end_offset - store.log.min_offset
            limits = config.scrub_days, config.scrub_bytes_per_s
            await trio.sleep(pause_s(part, total, *limits))
        elif part is not None and not part.is_urgent and was_empty:
            await wait_for_messages()
            part = None
        else:  # blocks may get digests without a new message
            await trio.sleep(PAUSE_S)
        was_empty = part is not None and not part.size


async def _read_part(scrub: Scrub, worker: Worker) -> Part | None:
    """Read the next part; None if a file was removed, or resources are missing."""
    parts: list[Part] = []
    try:
        await worker.run(lambda: parts.append(scrub.next_part()))
    except (OSError, ValueError) as error:  # ValueError: a file was removed
        logger.warning("scrubbing failed, will try again: %s", error)
        return None
    return parts[0]
