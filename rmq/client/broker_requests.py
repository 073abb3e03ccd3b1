"""BrokerRequests: answers the requests that brokers and tools send to a consumer.

Known in Java as `ClientRemotingProcessor`; the answers are Java's.

| code | request |
|---|---|
| 40 | the members of the group have changed |
| 220 | continue at other offsets |
| 221 | return the consumed offsets |
| 307 | return the state of the consumer |
| 309 | consume this message now |
"""

import json
import time
from typing import Any, Final

from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.assigned_queue import AssignedQueue
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.group_offsets import GroupOffsets
from rmq.client.handlers import HandlerPool
from rmq.client.namespaces import queue_of, unwrap, wire_queue
from rmq.client.options import ConsumerGroup
from rmq.client.puller import Puller
from rmq.client.rebalance import Rebalance
from rmq.core.errors import RmqError
from rmq.outgoing.connection import steady_ms
from rmq.protocol import fastjson
from rmq.protocol.bodies.queues import GetConsumerStatusBody, ResetOffsetBody
from rmq.protocol.codes import WIRE_VERSION_NAME, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.compression import open_body
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rmq.protocol.headers.offsets import ResetOffsetRequestHeader

MIB: Final = 1 << 20


class BrokerRequests:
    """Answers requests of brokers; its entry is `respond`."""

    def __init__(
        self,
        client: Client,
        group: ConsumerGroup,
        puller: Puller,
        offsets: GroupOffsets,
        rebalance: Rebalance,
    ) -> None:
        self._client = client
        self._group = group
        self._puller = puller
        self._offsets = offsets
        self._rebalance = rebalance
        self._started_s = time.time()

    async def respond(
        self, request: Command, handlers: HandlerPool | None
    ) -> Command | None:
        """Return the answer; None if the request is not for this consumer.

        `handlers` is the pool of `Consumer.run`, if `run` is active.
        """
        code, group = request.code, self._group.name
        if code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            changed = request.header(NotifyConsumerIdsChangedRequestHeader)
            if changed.consumer_group != group:
                return None
            self._rebalance.trigger()
            return request.reply()
        if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
            if request.header(ResetOffsetRequestHeader).group != group:
                return None
            await self._reset_offsets(ResetOffsetBody.decode(request.body))
            return request.reply()
        if code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            status = request.header(GetConsumerStatusRequestHeader)
            if status.group != group:
                return None
            return request.reply(body=self._consumed_offsets(status.topic))
        if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            info = request.header(GetConsumerRunningInfoRequestHeader)
            if info.consumer_group != group:
                return None
            return request.reply(body=fastjson.dump_json(self.running_info(handlers)))
        if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            directly = request.header(ConsumeMessageDirectlyResultRequestHeader)
            if directly.consumer_group != group:
                return None
            return await self._consume(request, directly, handlers)
        return None

    def _wire_queue(self, queue: MessageQueue) -> Any:  # noqa: ANN401 - a key for JSON
        return wire_queue(self._client.namespace, queue)

    async def _reset_offsets(self, body: ResetOffsetBody) -> None:
        """Continue at the offsets that a tool has chosen."""
        moved = []
        for name, offset in body.offset_table.items():
            queue = queue_of(self._client.namespace, name)
            assigned = self._puller.queues.get(queue)
            if assigned is not None:
                self._puller.seek(assigned, offset)
                moved.append(assigned)
        await self._offsets.commit(moved)
        for assigned in moved:
            self._puller.pull(assigned)

    def _consumed_offsets(self, topic: str) -> bytes:
        """Return the offset to commit of each queue of a topic."""
        table = {
            self._wire_queue(each.queue): each.state.commit_offset
            for each in self._puller.queues.values()
            if each.subscription.topic == topic
        }
        return GetConsumerStatusBody(message_queue_table=table).encode()

    def running_info(self, handlers: HandlerPool | None) -> dict[str, Any]:
        """Return the document `ConsumerRunningInfo`."""
        popper = self._rebalance.popper
        subscriptions = self._rebalance.subscriptions.values()
        succeeded = handlers.succeeded_count if handlers else 0
        failed = handlers.failed_count if handlers else 0
        seconds = max(time.time() - self._started_s, 1.0)
        return {
            "mqTable": {
                self._wire_queue(each.queue): _queue_info(each)
                for each in self._puller.queues.values()
            },
            "mqPopTable": {
                self._wire_queue(each.queue): {
                    "droped": each.is_revoked,
                    "lastPopTimestamp": _date_ms(each.last_pull_ms),
                    "waitAckCount": each.open_count,
                }
                for each in (popper.queues.values() if popper else ())
            },
            "properties": {
                "PROP_NAMESERVER_ADDR": ";".join(self._client.name_servers),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": json.dumps(self._group.ordered),
                "PROP_THREADPOOL_CORE_SIZE": str(
                    handlers.concurrency if handlers else 0
                ),
                "PROP_CONSUMER_START_TIMESTAMP": str(int(self._started_s * 1_000)),
                "PROP_CLIENT_VERSION": WIRE_VERSION_NAME,
            },
            "statusTable": {
                topic: {
                    "consumeFailedMsgs": failed,
                    "consumeFailedTPS": failed / seconds,
                    "consumeOKTPS": succeeded / seconds,
                    "consumeRT": 0.0,
                    "pullRT": 0.0,
                    "pullTPS": self._puller.fetched_count / seconds,
                }
                for topic in {each.topic for each in subscriptions}
            },
            "subscriptionSet": [each.to_wire() for each in subscriptions],
            "userConsumerInfo": {},
        }

    async def _consume(
        self,
        request: Command,
        header: ConsumeMessageDirectlyResultRequestHeader,
        handlers: HandlerPool | None,
    ) -> Command:
        """Call the handler with a message that a tool has sent."""
        if handlers is None:
            return request.reply(
                ResponseCode.SYSTEM_ERROR,
                f"the consumer group {header.consumer_group} has no handler: "
                "its program iterates over messages",
            )
        topic = unwrap(self._client.namespace, header.topic or "")
        queue = MessageQueue(topic, header.broker_name or "", 0)
        try:
            (message,) = decode_messages(
                request.body, topic, queue, _NoLease(), inflate=open_body
            )
        except ValueError as error:
            return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
        started = time.monotonic()
        remark = await _try_handler(handlers, message)
        result = {
            "autoCommit": True,
            "consumeResult": "CR_SUCCESS" if remark is None else "CR_THROW_EXCEPTION",
            "order": self._group.ordered,
            "remark": remark,
            "spentTimeMills": int((time.monotonic() - started) * 1_000),
        }
        return request.reply(body=fastjson.dump_json(result))


def _queue_info(queue: AssignedQueue) -> dict[str, Any]:
    """Return `ProcessQueueInfo`; its misspelt name is Java's."""
    state = queue.state
    return {
        "cachedMsgCount": state.count,
        "cachedMsgMaxOffset": state.last_offset if state.count else 0,
        "cachedMsgMinOffset": state.commit_offset if state.count else 0,
        "cachedMsgSizeInMiB": state.bytes // MIB,
        "commitOffset": state.commit_offset,
        "droped": queue.is_revoked,
        "lastConsumeTimestamp": _date_ms(queue.last_consume_ms),
        "lastLockTimestamp": _date_ms(queue.locked_until_ms),
        "lastPullTimestamp": _date_ms(queue.last_pull_ms),
        "locked": queue.locked_until_ms > steady_ms(),
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _date_ms(steady: int) -> int:
    """Return milliseconds since 1970 of a time of `steady_ms`."""
    return int(time.time() * 1_000) - steady_ms() + steady


async def _try_handler(handlers: HandlerPool, message: ReceivedMessage) -> str | None:
    """Return None if the handler returns, or the text of its exception."""
    try:
        await handlers.call([message])
    except Exception as error:
        return repr(error)
    return None


class _NoLease:
    """The lease of a message that a tool has sent: it belongs to no queue."""

    is_revoked = False

    def ack(self, _: ReceivedMessage) -> bool:
        """Return True; there is nothing to record."""
        return True

    async def nack(
        self, message: ReceivedMessage, _: float | None, *, dead_letter: bool
    ) -> None:
        """Raise, so that the tool sees a failure."""
        kind = "dead letter" if dead_letter else "failure"
        raise RmqError(f"the handler reports message {message.msg_id} as a {kind}")
