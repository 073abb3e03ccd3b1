"""Requests 306, 316 and 329: delete expired files, and the queues of deleted topics.

306 deletes at once the files of queues whose messages the log no longer has. 316
deletes at once the queues of topics that are not in the table. 329 lets the next
cleanings delete expired files of the log at any hour.
"""

import trio

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command


class CleaningHandler:
    """The cleaning part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker
        self._store = broker.store
        self._cleaner = broker.cleaner
        self._topics = broker.topics

    def clean_log_files(self, request: Command, connection: Connection) -> Command:
        """Let the next cleanings delete expired log files at any hour."""
        self._cleaner.request()
        return request.reply()

    async def clean_queue_files(
        self, request: Command, connection: Connection
    ) -> Command:
        """Unlink queue files whose messages the log no longer has."""
        self._cleaner.request_queues()
        for step in self._cleaner.clean_queues():
            await trio.to_thread.run_sync(step)
        return request.reply()

    async def clean_unused_topics(
        self, request: Command, connection: Connection
    ) -> Command:
        """Remove the queues of topics that are not in the table."""
        unused = self._store.unused_topics(self._topics.all())
        await record_deletion(self._broker, unused)
        for topic in unused:
            if self._topics.get(topic) is None:
                await trio.to_thread.run_sync(self._store.delete_topic(topic))
        return request.reply()


async def record_deletion(broker: BrokerContext, topics: set[str]) -> None:
    """Save the deletion of topics, before the caller deletes them.

    RequestRejected if the broker cannot save the deletion; then nothing has changed.
    """
    try:
        await trio.to_thread.run_sync(broker.store.record_deletion(topics))
    except OSError as error:
        raise RequestRejected(
            ResponseCode.SYSTEM_ERROR,
            "nothing is deleted, because the broker cannot save the deletion: "
            f"{error.strerror}; correct this error and send the request again",
        ) from error
