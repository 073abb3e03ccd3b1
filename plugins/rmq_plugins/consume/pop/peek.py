"""Request 200052 PEEK_MESSAGE: messages to pop, which stay visible."""

from rmq.plugin import Connection
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import PeekMessageRequestHeader, PopMessageResponseHeader
from rmq_plugins.consume.answers import FOUND, NOTHING
from rmq_plugins.consume.checks import MAX_MESSAGES
from rmq_plugins.consume.filters import MessageFilter
from rmq_plugins.consume.pop.checks import PopChecks
from rmq_plugins.consume.pop.reading import PopReader
from rmq_plugins.consume.pop.sources import PopSources, Source


class PeekHandler:
    """Known in Java as `PeekMessageProcessor`."""

    def __init__(
        self, checks: PopChecks, reader: PopReader, sources: PopSources
    ) -> None:
        self._checks = checks
        self._reader = reader
        self._sources = sources

    def peek(self, request: Command, connection: Connection) -> Command:
        """Answer with messages, which stay visible; the number of remaining messages in
        the answer includes these.
        """
        header = request.header(PeekMessageRequestHeader)
        plan = self._checks.plan_query(header, connection)
        most, rest = max(1, min(header.max_msg_nums, MAX_MESSAGES)), 0
        queues = range(plan.topic.read_queue_nums)
        own = [header.queue_id] if header.queue_id >= 0 else queues
        sources = [Source(header.topic, queue_id, "0") for queue_id in own]
        records: list[bytes] = []
        room = most
        for source in sources + self._sources.retry_sources(
            header.topic, header.consumer_group
        ):
            topic, queue_id, _flag = source
            position = self._reader.find_position(
                topic, header.consumer_group, queue_id
            )
            rest += self._reader.count_remaining(topic, queue_id, position)
            if room:
                found = self._reader.read(
                    topic, queue_id, position, room, MessageFilter()
                )
                records += found.records
                room -= len(found.offsets)
        shown = PopMessageResponseHeader(
            pop_time=0, invisible_time=0, revive_qid=0, rest_num=rest
        )
        if not records:
            code = ResponseCode.PULL_NOT_FOUND
            return request.reply(code, NOTHING, header=shown)
        return request.reply(header=shown, body=b"".join(records), remark=FOUND)
