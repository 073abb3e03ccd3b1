"""BatchSender: sends the messages of one call in concurrent batches."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import cast

import anyio

from rmq._fastpath.client.messages import SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import SendBudget
from rmq.client.core.batches import BatchLimits, split
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError, SendManyFailed
from rmq.client.message import Message
from rmq.client.packing import Packer


class BatchSender:
    """Sends the lists of one producer; `wait_for_room` waits until the budget has room
    for a message.
    """

    def __init__(
        self,
        packer: Packer,
        limits: BatchLimits,
        budget: SendBudget,
        wait_for_room: Callable[[int, int], Awaitable[None]],
        send_joined: Callable[
            [list[PackedMessage], MessageQueue | None], Awaitable[list[SendResult]]
        ],
    ) -> None:
        self._packer = packer
        self._limits = limits
        self._budget = budget
        self._wait_for_room = wait_for_room
        self._send_joined = send_joined

    async def send(
        self, messages: Iterable[Message], queue: MessageQueue | None
    ) -> list[SendResult]:
        """Return the results in the same order; SendManyFailed if some failed."""
        packed = [self._packer.pack(each, joins=True) for each in messages]
        results: list[SendResult | ClientError | None] = [None] * len(packed)
        groups: dict[tuple[str, bool, int], list[int]] = {}
        last, members = None, list[int]()
        for index, each in enumerate(packed):
            group_key = each.topic, each.wait_stored, index if each.alone else -1
            if group_key != last:
                last, members = group_key, groups.setdefault(group_key, [])
            members.append(index)
        async with anyio.create_task_group() as tasks:
            for group in groups.values():
                sized = [(index, packed[index].size) for index in group]
                for part, size in split(sized, self._limits):
                    batch = [packed[index] for index in part]
                    if queue is None:
                        tasks.start_soon(self._send_part, batch, part, size, results)
                    else:
                        await self._send_part(batch, part, size, results, queue)
        return all_sent(cast("list[SendResult | ClientError]", results))

    async def _send_part(
        self,
        batch: list[PackedMessage],
        indexes: list[int],
        size: int,
        results: list[SendResult | ClientError | None],
        queue: MessageQueue | None = None,
    ) -> None:
        """Send one batch; store its results or errors in `results`."""
        if not self._budget.try_acquire(size, len(batch)):
            await self._wait_for_room(size, len(batch))
        found: Sequence[SendResult | ClientError]
        try:
            found = await self._send_joined(batch, queue)
        except ClientError as error:
            found = [error] * len(batch)
        finally:
            self._budget.release(size, len(batch))
        for index, result in zip(indexes, found, strict=True):
            results[index] = result


def all_sent(results: list[SendResult | ClientError]) -> list[SendResult]:
    """Return the results; SendManyFailed if one is a failure."""
    failures = [each for each in results if isinstance(each, ClientError)]
    if failures:
        raise SendManyFailed(failures, results)
    return cast("list[SendResult]", results)
