"""EarlierMessages: a new slave pulls compacted messages that its log never had.

The commit log of the master may have deleted messages that a compaction topic still
keeps. The log of a new slave begins later. For each queue of such a topic the slave
pulls the missing first messages from the master, as a consumer does. Only then it
copies the queue from its own log. Java's slaves do the same.
"""

import logging
from collections.abc import Callable
from typing import Final

import trio

from rmq.cluster.directory import Ask
from rmq.cluster.group_role import GroupRole
from rmq.core.errors import ConnectFailed, RmqError
from rmq.core.logs import Foreign
from rmq.core.threads import in_thread
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.store.compaction.compaction_store import CompactionStore, EarlierPart

logger = logging.getLogger(__name__)

GROUP: Final = "TOOLS_CONSUMER"
"""A group that every broker has."""

AT_ONCE: Final = 32
TIMEOUT_MS: Final = 10_000
PAUSE_S: Final = 1.0
"""Pause between two searches for queues that lack messages."""

_FURTHER: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
"""Codes of answers that name the offset of the next pull."""


class EarlierMessages:
    """Known in Java as the `MessageFetcher` of a `CompactionLog`."""

    def __init__(
        self,
        compaction: CompactionStore,
        role: GroupRole,
        ask: Ask,
        is_copy: Callable[[], bool],
    ) -> None:
        """It pulls only while `is_copy` returns true: then the log is a copy of the
        master's log.
        """
        self._compaction = compaction
        self._role = role
        self._ask = ask
        self._is_copy = is_copy
        self._error = ""

    async def run(self) -> None:
        """Pull the messages that queues lack, until cancelled."""
        while True:
            if self._role.master_address and self._is_copy():
                await self.pull_all()
            await trio.sleep(PAUSE_S)

    async def pull_all(self) -> None:
        """Pull for each queue that lacks messages; log an error once."""
        error = ""
        for lacking in self._compaction.lacking_parts():
            try:
                await self._pull(lacking)
            except (RmqError, OSError) as failure:
                error = str(failure)
        if error and not self._error:
            logger.warning(
                "cannot pull compacted messages from the master %s: %s",
                self._role.master_address,
                Foreign(error),
            )
        self._error = error

    async def _pull(self, lacking: EarlierPart) -> None:
        offset = 0
        await in_thread(lacking.begin)
        while offset < lacking.end_offset:
            answer = await self._ask(
                self._role.master_address, _request(lacking, offset), TIMEOUT_MS
            )
            text = answer.ext_fields.get("nextBeginOffset", "")
            following = int(text) if text.isdecimal() else 0
            if answer.code == ResponseCode.PULL_NOT_FOUND:
                break
            if answer.code not in _FURTHER or following <= offset:
                raise ConnectFailed(f"it answers {answer.code}: {answer.remark}")
            if answer.code == ResponseCode.SUCCESS:
                await in_thread(lacking.add, answer.body)
            offset = following
        await in_thread(lacking.finish)
        self._compaction.accept_earlier(lacking)
        logger.info(
            "pulled the compacted messages of queue %d of topic %s up to offset %d",
            lacking.queue_id,
            Foreign(lacking.topic),
            lacking.end_offset,
        )


def _request(lacking: EarlierPart, offset: int) -> Command:
    header = PullMessageRequestHeader(
        consumer_group=GROUP,
        topic=lacking.topic,
        queue_id=lacking.queue_id,
        queue_offset=offset,
        max_msg_nums=AT_ONCE,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return Command.request(RequestCode.PULL_MESSAGE, header)
