"""GivingBack: what happens to a message that could not be consumed.

Concurrent: the broker delivers it again later (request 36); if that fails, a copy goes
to the group's retry topic, as from Java's clients; if that fails too, it is consumed
here again after 5 s. Ordered: it is consumed here again after a pause, before all later
ones of its queue. A broadcast message is consumed again by nobody.

A message comes again `max_attempts` times; the failure after that puts it into the
group's dead-letter queue. Known in Java as `maxReconsumeTimes`, there also for ordered
groups.
"""

import logging
import random
from typing import Final

import anyio

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.client.assigned_queue import HeldQueue
from rmq.client.errors import NoRoute
from rmq.client.fetch_queue import AskedQueue
from rmq.client.members import GroupMember
from rmq.client.namespaces import wrap
from rmq.client.puller import Puller
from rmq.core.errors import PeerError
from rmq.core.logs import Foreign, SparseLog
from rmq.outgoing.connection import date_ms, steady_ms
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

AGAIN_S: Final = 5.0
SUSPEND_S: Final = 1.0
"""Java's `suspendCurrentQueueTimeMillis`."""

LEVELS_S: Final = (
    1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600,
    7200,
)  # fmt: skip
"""Java's default delays of levels 1 to 18."""

RETRY_LEVEL: Final = 3
"""The level after the first failure, by brokers and Java's clients."""

DEAD_LETTER: Final = -1


def level_of(delay_s: float) -> int:
    """Return the first level that is not shorter; the last one if none is."""
    for level, seconds in enumerate(LEVELS_S, 1):
        if seconds >= delay_s:
            return level
    return len(LEVELS_S)


class GivingBack:
    """See above."""

    def __init__(
        self,
        member: GroupMember,
        puller: Puller,
        max_attempts: int | None,
        *,
        namespace: str,
        ordered: bool,
        broadcast: bool,
    ) -> None:
        self._member = member
        self._puller = puller
        self._max_attempts = max_attempts
        self._namespace = namespace
        self._ordered = ordered
        self._broadcast = broadcast

    async def give_back(
        self,
        held: HeldQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        """Have a message delivered again, or put into the dead-letter queue."""
        if held.is_revoked:
            return
        if self._broadcast:
            logger.warning("%s failed; nobody consumes it again", message.msg_id)
            held.ack(message)
        elif self._ordered:
            await self._suspend(held, message, delay_s, dead_letter=dead_letter)
        elif await self._sent_back(held, message, delay_s, dead_letter=dead_letter):
            held.ack(message)
        else:
            await self._again_here(held, message)

    async def _suspend(
        self,
        held: HeldQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> None:
        limit = self._max_attempts
        is_last = limit is not None and message.attempt > limit
        if (dead_letter or is_last) and await self.buried(held, message):
            held.ack(message)
            return
        message.local_attempts += 1
        pause_s = SUSPEND_S if delay_s is None else delay_s
        held.rests_until_ms = steady_ms() + int(pause_s * 1_000)
        self._puller.put_back(held, message)

    async def _sent_back(
        self,
        held: HeldQueue,
        message: ReceivedMessage,
        delay_s: float | None,
        *,
        dead_letter: bool,
    ) -> bool:
        level = 0 if delay_s is None else level_of(delay_s)
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._member.group,
            delay_level=DEAD_LETTER if dead_letter else level,
            origin_msg_id=message.msg_id,
            origin_topic=held.subscription.topic,
            max_reconsume_times=self._max_attempts,
        )
        try:
            code = RequestCode.CONSUMER_SEND_MSG_BACK
            answer = await self._member.ask(held.queue, code, header)
        except (PeerError, NoRoute) as error:
            logger.info("%s is not taken back: %s", message.msg_id, Foreign(error))
        else:
            if answer.code == ResponseCode.SUCCESS:
                return True
            logger.warning(
                "%s is not taken back: %d: %s",
                message.msg_id,
                answer.code,
                Foreign(answer.remark),
            )
        return await self._copied(held, message, is_dead=dead_letter)

    async def buried(self, asked: AskedQueue, message: ReceivedMessage) -> bool:
        """Put a copy into the dead-letter queue; False if that failed."""
        return await self._copied(asked, message, is_dead=True)

    async def _copied(
        self, held: AskedQueue, message: ReceivedMessage, *, is_dead: bool
    ) -> bool:
        """Send a copy to the group's retry topic, from where it comes again."""
        client = self._puller.client
        try:
            route = await client.route_to_send(held.queue.topic)
            brokers = sorted({each.broker for each in route.writable})
            address = route.master(random.choice(brokers))
            assert address is not None
            request = self._copy(message, is_dead=is_dead)
            answer = await client.ask(address, request)
        except (PeerError, NoRoute) as error:
            logger.info("no copy of %s: %s", message.msg_id, Foreign(error))
            return False
        return answer.code == ResponseCode.SUCCESS

    def _copy(self, message: ReceivedMessage, *, is_dead: bool) -> Command:
        attempts = message.attempt
        limit = self._max_attempts or attempts
        if is_dead:  # brokers compare: more often than the limit
            attempts = max(limit, attempts)
            limit = attempts - 1
        level = RETRY_LEVEL + message.reconsume_times
        texts = {
            **message.properties,
            names.RETRY_TOPIC: wrap(self._namespace, message.topic),
            names.ORIGIN_MESSAGE_ID: message.msg_id,
            names.RECONSUME_TIME: str(attempts),
            names.MAX_RECONSUME_TIMES: str(limit),
            names.DELAY: str(level),
        }
        texts.pop(names.TRAN_MSG, None)
        header = SendMessageRequestHeaderV2(
            producer_group="CLIENT_INNER_PRODUCER",
            topic=retry_topic(self._member.group),
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

    async def _again_here(self, held: HeldQueue, message: ReceivedMessage) -> None:
        """Consume it here again later."""
        message.local_attempts += 1
        self._puller.client.spawn(self._later, held, message)

    async def _later(self, held: HeldQueue, message: ReceivedMessage) -> None:
        await anyio.sleep(AGAIN_S)
        self._puller.put_back(held, message)
