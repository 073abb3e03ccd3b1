# tidy: long — one class for each of the asynchronous client
"""The client for threads: `Producer` and `Consumer` without `await`, from any thread.

    with Producer(NS) as producer, Consumer(NS, "billing", "Orders") as consumer:
        producer.send(Message("Orders", b"bread"))
        for message in consumer:
            book(message.body)

The asynchronous client does the work in the thread of the portal. Each class has the
same options as its asynchronous twin, and each method the same parameters and
docstring. Hooks run in the thread of the portal, with the context of the calling
thread.
"""

import asyncio
import contextvars
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, wraps
from operator import attrgetter
from types import TracebackType
from typing import (
    Any,
    Concatenate,
    Final,
    Literal,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
)

import anyio
import anyio.to_thread

from rmq._fastpath.client.messages import Delivery as AsyncDelivery
from rmq._fastpath.client.messages import ReceivedMessage
from rmq._fastpath.client.sending import EndCounter
from rmq._fastpath.client.sending import ThreadDelivery as Delivery
from rmq.client.client import Client as AsyncClient
from rmq.client.compression import Compression
from rmq.client.consumer import Consumer as AsyncConsumer
from rmq.client.core.allocate import Allocate
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import ClientError
from rmq.client.hooks import Hook
from rmq.client.lifecycle import LIFE, Lifecycle, PublicNames
from rmq.client.message import Message
from rmq.client.message_trace import MessageTrace as AsyncMessageTrace
from rmq.client.offsets import OffsetStore
from rmq.client.portal import get_portal
from rmq.client.producer import Producer as AsyncProducer
from rmq.client.rebalance import QueueCallback
from rmq.client.subscription import Sql, Start, Topics
from rmq.client.transaction import Checker, Transaction
from rmq.outgoing.identity import Trust
from rmq.outgoing.signing import Credentials
from rmq.protocol.topics import TRACE_TOPIC

P = ParamSpec("P")
T = TypeVar("T")

AHEAD: Final = 256
"""Maximum number of messages that an iterator gets from the portal in one call.

With hooks an iterator gets one message at a time, because hooks see each message when
the program gets it.
"""


class _Blocking(PublicNames):
    """Opens and closes an object of the asynchronous client."""

    _inner: Lifecycle

    def __repr__(self) -> str:
        return f"{repr(self._inner)[:-1]}, for threads>"

    def start(self) -> Self:
        """Open the object, as the begin of a `with` block does."""
        return self.__enter__()

    def __enter__(self) -> Self:
        get_portal().call(self._inner.start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        get_portal().call(self._inner.aclose)

    def close(self) -> None:
        """Close the object, as the end of a `with` block does."""
        self.__exit__(None, None, None)


Kind = TypeVar("Kind", bound=type)


def _twin_of(original: type[Lifecycle]) -> Callable[[Kind], Kind]:
    """Copy options, docstring and public names of an asynchronous class to its class
    for threads.
    """

    def copy_twin(found: Kind) -> Kind:
        # mypy does not know that classes have `__signature__`
        found.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        found.__doc__ = original.__doc__
        # `Kind` can be any class, and only some have `public_names`
        found.public_names = (original.public_names - LIFE) | {"close", "start"}  # type: ignore[attr-defined]
        for name, method in vars(found).items():
            twin = getattr(original, name, None)
            if not name.startswith("_") and callable(method) and twin is not None:
                method.__doc__ = twin.__doc__
        return found

    return copy_twin


def _inner_of(given: Any) -> Any:  # noqa: ANN401 - a client, a hook, or addresses
    """Return the asynchronous twin of an object."""
    return given._inner if isinstance(given, _Blocking) else given


def _blocking_method(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:  # noqa: ANN401 - as method
        return get_portal().call(partial(method, self._inner, *args, **options))

    return call


class ClientOptions(TypedDict, total=False):
    """Options of `rmq.client.Client`; `hooks` may also have hooks of this module."""

    client_id: str | None
    tls: Trust | None
    credentials: Credentials | None
    namespace: str
    connect_timeout_ms: int
    route_interval_s: float
    heartbeat_interval_s: float


class ProducerOptions(TypedDict, total=False):
    """Options of `rmq.client.Producer`."""

    group: str
    timeout_ms: int
    attempt_timeout_ms: int
    attempts: int | None
    sticky: bool
    linger_ms: float | None
    batch_bytes: int
    batch_messages: int
    max_pending: int
    max_pending_bytes: int
    max_message_bytes: int
    compress_over: int | None
    compression: Compression
    checker: Checker | None


class ConsumerOptions(TypedDict, total=False):
    """Options of `rmq.client.Consumer`."""

    ordered: bool
    broadcast: bool
    silent: bool
    start: Start
    strategy: Literal["average", "circle"] | Allocate
    mode: Literal["auto", "pull", "pop"]
    invisible_s: float
    fetch_messages: int
    buffer_messages: int
    buffer_bytes: int
    max_attempts: int | None
    consume_timeout_s: float
    commit_interval_s: float
    start_timeout_s: float
    shutdown_timeout_s: float
    offsets: OffsetStore | None
    on_assigned: QueueCallback | None
    on_revoked: QueueCallback | None


_Enqueued = tuple[Message, dict[str, Any] | None, Delivery, contextvars.Context | None]


@_twin_of(AsyncClient)
class Client(_Blocking):
    """Connections, routes, heartbeats and hooks, as in `rmq.client.Client`."""

    _inner: AsyncClient

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        hooks: Sequence["Hook | MessageTrace"] = (),
        **options: Unpack[ClientOptions],
    ) -> None:
        inner = [_inner_of(each) for each in hooks]
        self._inner = AsyncClient(name_servers, hooks=inner, **options)

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses of the name servers."""
        return self._inner.name_servers

    @property
    def namespace(self) -> str:
        """The tenant."""
        return self._inner.namespace

    @property
    def client_id(self) -> str:
        """The name of this client in its groups."""
        return self._inner.client_id


def _client_of(inner: AsyncClient) -> Client:
    """Return the client for threads that uses an asynchronous client."""
    found = Client.__new__(Client)
    found._inner = inner
    return found


_ClientLike = Client | AsyncClient | str | None


@_twin_of(AsyncMessageTrace)
class MessageTrace(_Blocking):
    """A hook for message traces, as `rmq.client.MessageTrace` is."""

    _inner: AsyncMessageTrace

    def __init__(
        self,
        client: _ClientLike = None,
        *,
        topic: str = TRACE_TOPIC,
        flush_interval_s: float = 1.0,
    ) -> None:
        self._inner = AsyncMessageTrace(
            _inner_of(client), topic=topic, flush_interval_s=flush_interval_s
        )

    @property
    def topic(self) -> str:
        """The topic of the traces."""
        return self._inner.topic

    dropped = property(
        attrgetter("_inner.dropped"), doc="Number of lines that had no room."
    )


@_twin_of(AsyncProducer)
class Producer(_Blocking):
    """Sends messages, as `rmq.client.Producer` does."""

    _inner: AsyncProducer

    def __init__(
        self, client: _ClientLike = None, **options: Unpack[ProducerOptions]
    ) -> None:
        self._inner = AsyncProducer(_inner_of(client), **options)
        self._max_pending = options.get("max_pending", 10_000)
        self._in_flight = 0
        self._ends = EndCounter(self._has_first_end)
        self._waiting: deque[_Enqueued] = deque()
        self._is_draining = False
        self._lock = threading.Lock()
        self._has_room = threading.Condition(self._lock)
        self._has_ended = threading.Condition(self._lock)
        self._awaiting = 0
        """Number of threads that wait for the end of a message."""

    send = _blocking_method(AsyncProducer.send)
    send_many = _blocking_method(AsyncProducer.send_many)
    send_oneway = _blocking_method(AsyncProducer.send_oneway)
    request = _blocking_method(AsyncProducer.request)
    reply = _blocking_method(AsyncProducer.reply)
    recall = _blocking_method(AsyncProducer.recall)

    @property
    def client(self) -> Client:
        """The client, shared or its own."""
        return _client_of(self._inner.client)

    @property
    def group(self) -> str:
        """The producer group."""
        return self._inner.group

    @property
    def timeout_ms(self) -> int:
        """Time limit of all attempts of one send together."""
        return self._inner.timeout_ms

    def transaction(self, message: Message) -> AbstractContextManager[Transaction]:
        """Send a half message, as in `rmq.client.Producer`."""
        return _Transaction(self._inner.transaction(message))

    def enqueue(
        self,
        message: Message,
        *,
        key: str | None = None,
        queue: MessageQueue | None = None,
    ) -> Delivery:
        """Accept a message, and wait only for room."""
        options = None
        if key is not None or queue is not None:
            options = {"key": key, "queue": queue}
        delivery, context = Delivery(self._await_end, self._ends), None
        if self._inner.client.is_watched:
            context = contextvars.copy_context()
        with self._lock:
            while self._in_flight >= self._max_pending:
                self._has_room.wait()
            self._in_flight += 1
            self._waiting.append((message, options, delivery, context))
            is_first, self._is_draining = not self._is_draining, True
        if is_first:
            get_portal().post(self._start_draining)
        return delivery

    def _await_end(self, delivery: Delivery, timeout_s: float | None) -> bool:
        """Wait for the end of a message; False after the time-out."""
        with self._lock:
            self._awaiting += 1
            try:
                return self._has_ended.wait_for(delivery.done, timeout_s)
            finally:
                self._awaiting -= 1

    def _has_first_end(self) -> None:
        """After this turn of the event loop, release the room of all messages that
        ended in it.
        """
        asyncio.get_running_loop().call_soon(self._make_room)

    def _make_room(self) -> None:
        ended = self._ends.reset()
        with self._lock:
            self._in_flight -= ended
            self._has_room.notify(ended)
            if self._awaiting:
                self._has_ended.notify_all()

    def _start_draining(self) -> None:
        if self._inner.is_ended:
            self._fail_all()
        else:
            self._inner.spawn(self._drain)

    async def _drain(self) -> None:
        """Send the messages that threads have enqueued."""
        while True:
            with self._lock:
                waiting, self._waiting = self._waiting, deque()
                if not waiting:
                    self._is_draining = False
                    return
            for message, options, delivery, context in waiting:
                try:
                    inner = None
                    if options is None and context is None:
                        inner = self._inner.enqueue_now(message)
                    if inner is None:
                        inner = await self._enqueue_slowly(message, options, context)
                except (ClientError, ValueError) as error:
                    delivery.end(error)
                else:
                    inner.add_done_callback(delivery.end)
            await asyncio.sleep(0)

    async def _enqueue_slowly(
        self,
        message: Message,
        options: dict[str, Any] | None,
        context: contextvars.Context | None,
    ) -> AsyncDelivery:
        """Send a message that must wait, has a queue or a key, or has hooks."""
        taking = self._inner.enqueue(message, **(options or {}))
        if context is None:
            return await taking
        loop = asyncio.get_running_loop()
        return await loop.create_task(taking, context=context)

    def _fail_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
            self._is_draining = False
        for each in waiting:
            each[2].end(ClientError("the producer was closed"))

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait for all enqueued messages; SendManyFailed if some have failed."""
        get_portal().call(self._flush, timeout_s)

    async def _flush(self, timeout_s: float | None) -> None:
        with anyio.fail_after(timeout_s):
            while self._is_draining:  # noqa: ASYNC110 - seldom, and not for long
                await anyio.sleep(0.001)
            await self._inner.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.flush()
        super().__exit__(kind, error, trace)


class _Transaction:
    """A block with an open transaction; the portal begins and ends it."""

    def __init__(self, inner: AbstractAsyncContextManager[Transaction]) -> None:
        self._inner = inner

    def __enter__(self) -> Transaction:
        return get_portal().call(self._enter)

    async def _enter(self) -> Transaction:
        return await self._inner.__aenter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        get_portal().call(self._exit, kind, error, trace)

    async def _exit(self, *error: Any) -> None:  # noqa: ANN401 - of __exit__
        await self._inner.__aexit__(*error)


class _Lease:
    """The lease of a message in a thread: the portal acknowledges it."""

    is_revoked = False

    def __init__(self, inner: Any) -> None:  # noqa: ANN401 - an AssignedQueue
        self._inner = inner

    def ack(self, message: ReceivedMessage) -> bool:
        """Mark it consumed."""
        return get_portal().call(self._ack, message)

    async def _ack(self, message: ReceivedMessage) -> bool:
        found: bool = self._inner.ack(message)
        return found

    def nack(
        self, message: ReceivedMessage, delay_s: float | None, *, dead_letter: bool
    ) -> None:
        """Let the broker deliver the message again."""
        give_back = partial(self._inner.nack, dead_letter=dead_letter)
        get_portal().call(give_back, message, delay_s)


@_twin_of(AsyncConsumer)
class Consumer(_Blocking):
    """Receives messages, as `rmq.client.Consumer` does."""

    _inner: AsyncConsumer

    def __init__(
        self,
        client: _ClientLike,
        group: str,
        topics: Topics = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        self._inner = AsyncConsumer(_inner_of(client), group, topics, **options)
        self._here: deque[ReceivedMessage] = deque()
        self._consumed: list[ReceivedMessage] = []
        self._last: list[ReceivedMessage] = []
        """The messages that the program is processing."""

    queues = _blocking_method(AsyncConsumer.queues)
    fetch = _blocking_method(AsyncConsumer.fetch)
    seek = _blocking_method(AsyncConsumer.seek)
    pause = _blocking_method(AsyncConsumer.pause)
    resume = _blocking_method(AsyncConsumer.resume)
    position = _blocking_method(AsyncConsumer.position)
    committed = _blocking_method(AsyncConsumer.committed)

    @property
    def client(self) -> Client:
        """The client, shared or its own."""
        return _client_of(self._inner.client)

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._inner.group

    ordered = property(
        attrgetter("_inner.ordered"),
        doc="Whether the messages of each queue are handled in their order.",
    )

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return self

    def __next__(self) -> ReceivedMessage:
        """Return the next message; this acknowledges the previous message."""
        if self._last:
            self._consumed += self._last
            self._last = []
        if not self._here:
            get_portal().call(self._receive_more)
            if not self._here:
                raise StopIteration
        message = self._here.popleft()
        self._last.append(message)
        return message

    def batches(
        self, max_messages: int = 32, max_wait_ms: int = 0
    ) -> Iterator[list[ReceivedMessage]]:
        """Yield lists, as in `rmq.client.Consumer`."""
        while True:
            self._consumed += self._last
            self._last = []
            get_portal().call(self._receive_list, max_messages, max_wait_ms)
            if not self._last:
                return
            yield [*self._last]

    async def _receive_list(self, count: int, wait_ms: int) -> None:
        """Acknowledge consumed messages; store the next messages in `_last`."""
        self._ack_consumed()
        if not self._here:
            self._last = await self._inner.receive_list(count, wait_ms)
        while self._here and len(self._last) < count:
            self._last.append(self._here.popleft())

    async def _receive_more(self) -> None:
        """Acknowledge consumed messages; add the next messages to `_here`, or no
        messages at the end.

        The portal adds the messages, so a Ctrl-C in the waiting thread loses no
        message.
        """
        self._ack_consumed()
        inner = self._inner
        is_single = inner.ordered or inner.client.is_watched
        found = await inner.receive(1 if is_single else AHEAD)
        if not found and inner.puller.failure is not None:
            raise inner.puller.failure
        self._here.extend(found)

    def _ack_consumed(self) -> None:
        consumed, self._consumed = self._consumed, []
        for message in consumed:
            message.ack()
        if consumed:
            self._inner.release(consumed[0])

    def deliveries(self) -> Iterator[ReceivedMessage]:
        """Yield messages; any thread ends a message by `ack()` or `nack()`."""
        while True:
            if not self._here:
                get_portal().call(self._receive_more)
            if not self._here:
                return
            message = self._here.popleft()
            if self._inner.ordered:
                get_portal().post(partial(self._inner.release, message))
            message.lease = _Lease(message.lease)  # type: ignore[assignment] # same methods
            yield message

    def run(
        self, handler: Callable[[Any], object], *, concurrency: int = 20, batch: int = 1
    ) -> None:
        """Call a function in worker threads for each message, until `stop`."""

        async def serve() -> None:
            limiter = anyio.CapacityLimiter(concurrency)
            await self._inner.run(
                lambda message: anyio.to_thread.run_sync(
                    handler, message, limiter=limiter
                ),
                concurrency=concurrency,
                batch=batch,
            )

        get_portal().call(serve)

    def stop(self) -> None:
        """End `run` and the iterators after the messages that they are processing."""
        get_portal().post(self._inner.stop)

    def assign(
        self, queues: Sequence[MessageQueue], expression: str | Sql = "*"
    ) -> None:
        """Consume these queues, and no others."""

        async def assign() -> None:
            self._inner.assign(queues, expression)

        get_portal().call(assign)

    def assignment(self) -> list[MessageQueue]:
        """Return our queues."""

        async def assignment() -> list[MessageQueue]:
            return self._inner.assignment()

        return get_portal().call(assignment)

    def lag(self) -> dict[MessageQueue, int]:
        """Return the number of unconsumed messages for each assigned queue."""

        async def lag() -> dict[MessageQueue, int]:
            return self._inner.lag()

        return get_portal().call(lag)

    def commit(self) -> None:
        """Commit the offset of the first unacknowledged message of each queue."""

        async def commit() -> None:
            self._ack_consumed()
            await self._inner.commit()

        get_portal().call(commit)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        get_portal().call(self._finish, error)
        super().__exit__(kind, error, trace)

    async def _finish(self, error: BaseException | None) -> None:
        """Acknowledge the iterator's messages; after an error send the last message
        back.
        """
        last, self._last = self._last, []
        if error is None:
            self._consumed += last
        self._ack_consumed()
        if isinstance(error, Exception) and not self._inner.ordered:
            for message in last:
                await message.nack()
