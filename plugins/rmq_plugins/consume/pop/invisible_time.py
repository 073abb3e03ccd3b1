"""Request 200053 CHANGE_MESSAGE_INVISIBLETIME: a new invisible time of one message.

The message moves from its checkpoint to a new one, which the answer's handle names.
"""

from rmq.plugin import BrokerContext, Connection, RequestRejected
from rmq.plugin.native import Checkpoint
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.handles import ORDERED_REVIVE_QUEUE, PopHandle
from rmq.protocol.headers.pop import ChangeInvisibleTimeRequestHeader
from rmq_plugins.consume.answers import answer_invisible_time
from rmq_plugins.consume.checks import check_invisible_time
from rmq_plugins.consume.pop.acks import AckHandler, no_message
from rmq_plugins.consume.pop.checkpoints import Checkpoints
from rmq_plugins.consume.pop.orders import Orders
from rmq_plugins.consume.pop.revive import Reviver


class InvisibleTimeHandler:
    """Known in Java as `ChangeInvisibleTimeProcessor`."""

    def __init__(
        self,
        broker: BrokerContext,
        checkpoints: Checkpoints,
        reviver: Reviver,
        orders: Orders,
        acks: AckHandler,
    ) -> None:
        self._log = broker.log
        self._offsets = broker.offsets
        self._clock = broker.clock
        self._config = broker.config
        self._checkpoints = checkpoints
        self._reviver = reviver
        self._orders = orders
        self._acks = acks

    def change_invisible_time(
        self, request: Command, connection: Connection
    ) -> Command:
        """Set the time at which a message becomes visible again."""
        header = request.header(ChangeInvisibleTimeRequestHeader)
        handle = self._acks.check_handle(header, connection)
        low, high = self._acks.offset_range(header.topic, header.queue_id)
        if not low <= header.offset < high:
            raise no_message(header, low, high)
        invisible_ms = header.invisible_time
        check_invisible_time(invisible_ms)
        if handle.revive_queue == ORDERED_REVIVE_QUEUE:
            return self._change_in_order(request, header, handle)
        pop_ms = self._replace_checkpoint(header, handle)
        if pop_ms is None:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, "append checkpoint error: the store is busy"
            )
        return answer_invisible_time(request, pop_ms, invisible_ms, handle.revive_queue)

    def _replace_checkpoint(
        self, header: ChangeInvisibleTimeRequestHeader, handle: PopHandle
    ) -> int | None:
        """Move a message from its checkpoint to a new one.

        Return the time of the POP in the message's new handle; None if the store is
        busy.
        """
        pop_ms = max(self._clock.now_ms(), handle.pop_ms + 1)
        old = self._acks.find_checkpoint(header, handle)
        if old is not None and header.offset not in old.open_offsets():
            return pop_ms  # acked or revived already
        queue = (
            old.queue
            if old is not None
            else self._acks.rebuild_checkpoint(header, handle).queue
        )
        while self._checkpoints.is_taken(queue, header.offset, pop_ms):
            pop_ms += 1
        new = Checkpoint(
            queue,
            header.offset,
            pop_ms,
            header.invisible_time,
            handle.revive_queue % self._config.revive_queue_nums,
            (header.offset,),
            self._log.end_offset,
            suspend=header.suspend,
        )
        in_memory = old is not None and not old.is_written
        keep = (
            self._reviver.add_checkpoint
            if in_memory
            else self._reviver.write_checkpoint
        )
        if not keep(new):
            return None
        self._acks.ack_one(header, handle, [header.offset])
        return pop_ms

    def _change_in_order(
        self,
        request: Command,
        header: ChangeInvisibleTimeRequestHeader,
        handle: PopHandle,
    ) -> Command:
        key = header.topic, header.consumer_group, header.queue_id
        if header.offset < self._offsets.query(key[1], key[0], key[2]):
            return answer_invisible_time(request, 0, 0, ORDERED_REVIVE_QUEUE)
        until_ms = self._clock.now_ms() + header.invisible_time
        self._orders.extend(key, header.offset, handle.pop_ms, until_ms)
        left_ms = until_ms - handle.pop_ms
        return answer_invisible_time(
            request, handle.pop_ms, left_ms, ORDERED_REVIVE_QUEUE
        )
