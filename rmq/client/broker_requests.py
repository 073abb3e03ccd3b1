"""Steering: what brokers and tools ask of a consumer.

40: members have changed. 220: go on elsewhere. 221: how far are you. 307: how are you.
309: consume this message now. The answers are Java's.
"""

import inspect
import json
import time
from typing import TYPE_CHECKING, Any

from rmq._fastpath.client.messages import ReceivedMessage, decode_messages
from rmq.client.assigned_queue import HeldQueue
from rmq.client.compression import inflate
from rmq.client.core.routes import MessageQueue
from rmq.client.namespaces import named, queue_of, unwrap
from rmq.core.errors import RmqError
from rmq.outgoing.connection import steady_ms
from rmq.protocol import fastjson
from rmq.protocol.bodies.queues import GetConsumerStatusBody, ResetOffsetBody
from rmq.protocol.codes import WIRE_VERSION_NAME, RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.client import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    NotifyConsumerIdsChangedRequestHeader,
)
from rmq.protocol.headers.offsets import ResetOffsetRequestHeader

if TYPE_CHECKING:
    from rmq.client.consumer import Consumer

MIB = 1 << 20


async def answer(consumer: "Consumer", request: Command) -> Command | None:
    """Return the answer; None if the request is not for this consumer."""
    code, group = request.code, consumer.member.group
    if code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        changed = request.header(NotifyConsumerIdsChangedRequestHeader)
        if changed.consumer_group != group:
            return None
        consumer.member.changed()
        return request.reply()
    if code == RequestCode.RESET_CONSUMER_CLIENT_OFFSET:
        reset = request.header(ResetOffsetRequestHeader)
        if reset.group != group:
            return None
        await _reset(consumer, ResetOffsetBody.decode(request.body))
        return request.reply()
    if code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
        status = request.header(GetConsumerStatusRequestHeader)
        if status.group != group:
            return None
        return request.reply(body=_status(consumer, status.topic))
    if code == RequestCode.GET_CONSUMER_RUNNING_INFO:
        info = request.header(GetConsumerRunningInfoRequestHeader)
        if info.consumer_group != group:
            return None
        return request.reply(body=running_info(consumer))
    if code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
        directly = request.header(ConsumeMessageDirectlyResultRequestHeader)
        if directly.consumer_group != group:
            return None
        return await _consume(consumer, request, directly)
    return None


async def _reset(consumer: "Consumer", body: ResetOffsetBody) -> None:
    """Go on at the offsets of a tool."""
    moved = []
    for name, offset in body.offset_table.items():
        queue = queue_of(consumer.client.namespace, name)
        held = consumer.member.held.get(queue)
        if held is not None:
            held.reset(offset)
            moved.append(held)
    await consumer.member.commit(moved)
    for held in moved:
        consumer.puller.pull(held)


def _status(consumer: "Consumer", topic: str) -> bytes:
    """Return how far each queue of a topic is consumed."""
    table = {
        named(consumer.client.namespace, each.queue): each.state.committable
        for each in consumer.member.held.values()
        if each.subscription.topic == topic
    }
    return GetConsumerStatusBody(message_queue_table=table).encode()


def running_info(consumer: "Consumer") -> bytes:
    """Return the document `ConsumerRunningInfo`."""
    held = list(consumer.member.held.values())
    handlers, popper = consumer.handlers, consumer.member.popper
    done, failed = (handlers.succeeded, handlers.failed) if handlers else (0, 0)
    seconds = max(time.time() - consumer.started_s, 1.0)
    topics = {each.topic for each in consumer.member.subscriptions.values()}
    return fastjson.dumps(
        {
            "mqTable": {
                named(consumer.client.namespace, each.queue): _queue_info(each)
                for each in held
            },
            "mqPopTable": {
                named(consumer.client.namespace, each.queue): {
                    "droped": each.is_revoked,
                    "lastPopTimestamp": _date_ms(each.last_pull_ms),
                    "waitAckCount": each.open_count,
                }
                for each in (popper.queues.values() if popper else ())
            },
            "properties": {
                "PROP_NAMESERVER_ADDR": ";".join(consumer.client.name_servers),
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CONSUMEORDERLY": json.dumps(consumer.ordered),
                "PROP_THREADPOOL_CORE_SIZE": str(consumer.concurrency),
                "PROP_CONSUMER_START_TIMESTAMP": str(int(consumer.started_s * 1_000)),
                "PROP_CLIENT_VERSION": WIRE_VERSION_NAME,
            },
            "statusTable": {
                topic: {
                    "consumeFailedMsgs": failed,
                    "consumeFailedTPS": failed / seconds,
                    "consumeOKTPS": done / seconds,
                    "consumeRT": 0.0,
                    "pullRT": 0.0,
                    "pullTPS": consumer.puller.fetched / seconds,
                }
                for topic in topics
            },
            "subscriptionSet": [
                each.data() for each in consumer.member.subscriptions.values()
            ],
            "userConsumerInfo": {},
        }
    )


def _queue_info(held: HeldQueue) -> dict[str, Any]:
    """Return `ProcessQueueInfo`; its misspelt name is Java's."""
    state = held.state
    return {
        "cachedMsgCount": state.count,
        "cachedMsgMaxOffset": state.last_offset if state.count else 0,
        "cachedMsgMinOffset": state.committable if state.count else 0,
        "cachedMsgSizeInMiB": state.bytes // MIB,
        "commitOffset": state.committable,
        "droped": held.is_revoked,
        "lastConsumeTimestamp": _date_ms(held.last_consume_ms),
        "lastLockTimestamp": _date_ms(held.locked_until_ms),
        "lastPullTimestamp": _date_ms(held.last_pull_ms),
        "locked": held.locked_until_ms > steady_ms(),
        "transactionMsgCount": 0,
        "transactionMsgMaxOffset": 0,
        "transactionMsgMinOffset": 0,
        "tryUnlockTimes": 0,
    }


def _date_ms(steady: int) -> int:
    """Return milliseconds since 1970 of a time of `steady_ms`."""
    return int(time.time() * 1_000) - steady_ms() + steady


async def _consume(
    consumer: "Consumer",
    request: Command,
    header: ConsumeMessageDirectlyResultRequestHeader,
) -> Command:
    """Give a message that a tool has sent to the handler."""
    handler = consumer.handler
    if handler is None:
        return request.reply(
            ResponseCode.SYSTEM_ERROR,
            f"the consumer group {header.consumer_group} has no handler: it iterates",
        )
    topic = unwrap(consumer.client.namespace, header.topic or "")
    queue = MessageQueue(topic, header.broker_name or "", 0)
    try:
        (message,) = decode_messages(
            request.body, topic, queue, _NoLease(), inflate=inflate
        )
    except ValueError as error:
        return request.reply(ResponseCode.SYSTEM_ERROR, str(error))
    begun = time.monotonic()
    remark = await _outcome(consumer, message)
    result = {
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS" if remark is None else "CR_THROW_EXCEPTION",
        "order": consumer.ordered,
        "remark": remark,
        "spentTimeMills": int((time.monotonic() - begun) * 1_000),
    }
    return request.reply(body=fastjson.dumps(result))


async def _outcome(consumer: "Consumer", message: ReceivedMessage) -> str | None:
    """Return None if the handler returns, else what it raised."""
    assert consumer.handler is not None
    try:
        found = consumer.handler([message] if consumer.batch > 1 else message)
        if inspect.isawaitable(found):
            await found
    except Exception as error:
        return repr(error)
    return None


class _NoLease:
    """The lease of a message that a tool has sent: it belongs to no queue."""

    is_revoked = False

    def ack(self, _: ReceivedMessage) -> bool:
        """Nothing is to be marked."""
        return True

    async def nack(
        self, message: ReceivedMessage, _: float | None, *, dead_letter: bool
    ) -> None:
        """Let the tool see a failure."""
        kind = "dead letter" if dead_letter else "failure"
        raise RmqError(f"{message.msg_id}: the handler calls it a {kind}")
