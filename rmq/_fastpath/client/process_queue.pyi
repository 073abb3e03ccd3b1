from collections import deque
from collections.abc import Collection
from typing import Any, Final, Protocol, Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.client.messages import ReceivedMessage

MAX_SPAN: Final = 2_000

class _Message(Protocol):
    @property
    def queue_offset(self) -> int: ...
    @property
    def size(self) -> int: ...

@final
class ProcessQueue:
    def __init__(self, next_offset: int) -> None: ...
    next_offset: int
    count: int
    bytes: int
    def add(self, messages: Collection[_Message], next_offset: int) -> None: ...
    def ack(self, message: _Message) -> bool: ...
    commit_offset: int
    last_offset: int
    is_far_ahead: bool
    def reset(self, offset: int) -> None: ...

@disjoint_base
class FetchBuffer:
    count: int
    bytes: int
    ready: deque[ReceivedMessage]
    blocked: set[Any]

@disjoint_base
class Lease:
    is_revoked: bool
    buffer: FetchBuffer
    state: ProcessQueue

    def ack(self, message: ReceivedMessage) -> bool: ...

class _Consumer(Protocol):
    async def next_message(self) -> ReceivedMessage | None: ...
    def ack_last(self) -> None: ...

@final
class MessageIterator:
    is_plain: bool
    last: ReceivedMessage | list[ReceivedMessage] | None

    def __init__(self, consumer: _Consumer, fetched: FetchBuffer) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> ReceivedMessage: ...
