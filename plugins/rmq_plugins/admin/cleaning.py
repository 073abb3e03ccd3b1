"""Requests 306, 316 and 329: delete old files, and queues of deleted topics.

329 lets the next cleanings delete expired log files at any hour; 306 deletes queue
files before the start of the log, and 316 the queues of unknown topics, both at once.
"""

import trio

from rmq.plugin import BrokerContext, Connection
from rmq.protocol.command import Command


class CleaningHandler:
    """The cleaning part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._store = broker.store
        self._topics = broker.topics

    def log_files(self, request: Command, connection: Connection) -> Command:
        """Let the next cleanings delete expired log files at any hour."""
        self._store.cleaner.request()
        return request.reply()

    async def queue_files(self, request: Command, connection: Connection) -> Command:
        """Unlink queue files whose messages the log no longer has."""
        self._store.cleaner.request_queues()
        for step in self._store.cleaner.clean_queues():
            await trio.to_thread.run_sync(step)
        return request.reply()

    def unused_topics(self, request: Command, connection: Connection) -> Command:
        """Remove the queues of topics that are not in the table."""
        self._store.clean_unused_topics(self._topics.all())
        return request.reply()
