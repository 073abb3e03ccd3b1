"""Redelivery: sends messages back that a consumer could not consume.

Known in Java as `ConsumeMessageConcurrentlyService.sendMessageBack`.

* Concurrent group: the broker delivers the message again later (request 36). If that
  fails, a copy goes to the retry topic of the group, as from Java's clients. If that
  fails too, this consumer consumes the message again after 5 s.
* Ordered group: this consumer consumes it again after a pause, before the later
  messages.
* Broadcast group: no consumer consumes it again.

A message comes again `max_attempts` times. After the next failure the message goes to
the dead-letter queue of the group. Java calls the limit `maxReconsumeTimes`, and
applies it to ordered groups too.
"""

import logging
import random
from typing import Final

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.client import Client
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError
from rmq.client.namespaces import wrap
from rmq.client.options import ConsumerGroup
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import date_ms
from rmq.protocol import properties as names
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)
from rmq.protocol.properties import encode_properties
from rmq.protocol.topics import DEFAULT_TOPIC, retry_topic

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LOCAL_RETRY_S: Final = 5.0
SUSPEND_S: Final = 1.0
"""Java's `suspendCurrentQueueTimeMillis`."""

LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600,
    7200,
)  # fmt: skip
"""Java's default delays of levels 1 to 18."""

RETRY_LEVEL: Final = 3
"""The level after the first failure, as in brokers and Java's clients."""

DEAD_LETTER: Final = -1


def level_of(delay_s: float) -> int:
    """Return the first level with at least this delay, or the last level."""
    for level, seconds in enumerate(LEVELS_S, 1):
        if seconds >= delay_s:
            return level
    return len(LEVELS_S)


class Redelivery:
    """Sends the requests for redelivery; no state of this client changes."""

    def __init__(self, client: Client, group: ConsumerGroup) -> None:
        self._client = client
        self._group = group

    async def send_back(
        self,
        wire_topic: str,
        queue: MessageQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> float | None:
        """Send a message back; return the pause before this consumer itself consumes
        the message again, or None.

        `wire_topic` is the topic of the queue on the wire.
        """
        if self._group.broadcast:
            logger.warning(
                "message %s failed; a broadcast group does not deliver it again",
                message.msg_id,
            )
            return None
        if self._group.ordered:
            is_dead = dead_letter or self._group.is_last_attempt(message.attempt)
            if is_dead and await self.send_to_dlq(queue, message):
                return None
            return SUSPEND_S if delay_s is None else delay_s
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group.name,
            delay_level=_level(delay_s, dead_letter=dead_letter),
            origin_msg_id=message.msg_id,
            origin_topic=wire_topic,
            max_reconsume_times=self._group.max_attempts,
        )
        is_sent = await self._try_broker(queue, message, header)
        if is_sent or await self._send_copy(queue, message, is_dead=dead_letter):
            return None
        return LOCAL_RETRY_S

    async def _try_broker(
        self,
        queue: MessageQueue,
        message: ReceivedMessage,
        header: ConsumerSendMsgBackRequestHeader,
    ) -> bool:
        """Send request 36; False if it fails."""
        request = Command.request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        try:
            answer = await self._client.request_broker(queue, request)
        except (PeerError, ClientError) as error:
            logger.info(
                "cannot send message %s back: %s", message.msg_id, Foreign(error)
            )
            return False
        if answer.code != ResponseCode.SUCCESS:
            logger.warning(
                "broker %s refuses the sent-back message %s: %d: %s",
                queue.broker,
                message.msg_id,
                answer.code,
                Foreign(answer.remark),
            )
        return answer.code == ResponseCode.SUCCESS

    async def send_to_dlq(self, queue: MessageQueue, message: ReceivedMessage) -> bool:
        """Send a copy to the dead-letter queue; False if that failed."""
        return await self._send_copy(queue, message, is_dead=True)

    async def _send_copy(
        self, queue: MessageQueue, message: ReceivedMessage, *, is_dead: bool
    ) -> bool:
        """Send a copy to the retry topic; the broker moves dead messages to the
        dead-letter queue.
        """
        client = self._client
        try:
            route = await client.route_to_send(queue.topic)
            brokers = sorted({each.broker for each in route.writable})
            address = route.master_of(random.choice(brokers))
            assert address is not None
            request = self._copy(message, is_dead=is_dead)
            answer = await client.request(address, request)
        except (PeerError, ClientError) as error:
            logger.info("cannot send a copy of %s: %s", message.msg_id, Foreign(error))
            return False
        return answer.code == ResponseCode.SUCCESS

    def _copy(self, message: ReceivedMessage, *, is_dead: bool) -> Command:
        attempts = message.attempt
        limit = self._group.max_attempts or attempts
        if is_dead:  # brokers test whether attempts exceed the limit
            attempts = max(limit, attempts)
            limit = attempts - 1
        level = RETRY_LEVEL + message.reconsume_times
        texts = {
            **message.properties,
            names.RETRY_TOPIC: wrap(self._group.namespace, message.topic),
            names.ORIGIN_MESSAGE_ID: message.msg_id,
            names.RECONSUME_TIME: str(attempts),
            names.MAX_RECONSUME_TIMES: str(limit),
            names.DELAY: str(level),
        }
        texts.pop(names.TRAN_MSG, None)
        header = SendMessageRequestHeaderV2(
            producer_group="CLIENT_INNER_PRODUCER",
            topic=retry_topic(self._group.name),
            default_topic=DEFAULT_TOPIC,
            default_topic_queue_nums=4,
            queue_id=0,
            sys_flag=0,
            born_timestamp=date_ms(),
            flag=message.flag,
            properties=encode_properties(texts),
            reconsume_times=attempts,
            unit_mode=False,
            max_reconsume_times=limit,
            batch=False,
        )
        return Command.request(RequestCode.SEND_MESSAGE_V2, header, message.body)


def _level(delay_s: float | None, *, dead_letter: bool) -> int:
    """Return the level of a delay; 0 lets the broker choose by the attempts."""
    if dead_letter:
        return DEAD_LETTER
    return 0 if delay_s is None else level_of(delay_s)
