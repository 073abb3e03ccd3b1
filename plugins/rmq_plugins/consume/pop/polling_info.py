"""Request 200055 POLLING_INFO: the number of waiting POPs of a queue."""

from rmq.plugin import Connection
from rmq.protocol.command import Command
from rmq.protocol.headers.pop import PollingInfoRequestHeader, PollingInfoResponseHeader
from rmq_plugins.consume.answers import UNSET
from rmq_plugins.consume.held_pops import ANY_QUEUE, HeldPops
from rmq_plugins.consume.pop.checks import PopChecks
from rmq_plugins.consume.pop.native import NativePops


class PollingInfoHandler:
    """Known in Java as `PollingInfoProcessor`."""

    def __init__(self, checks: PopChecks, held: HeldPops, native: NativePops) -> None:
        self._checks = checks
        self._held = held
        self._native = native

    def report_polling(self, request: Command, connection: Connection) -> Command:
        """Answer the number of waiting POPs of a queue."""
        header = request.header(PollingInfoRequestHeader)
        self._checks.plan_query(header, connection)
        key = header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE)
        count = self._held.count(key)
        if header.queue_id < 0:
            count += self._native.count_notices(header.topic, header.consumer_group)
        answer = PollingInfoResponseHeader(polling_num=count)
        return request.reply(header=answer, remark=UNSET)
