"""Hooks: functions of a program that see each send, each receive and each handler.

Java's `SendMessageHook` and `ConsumeMessageHook`. The hooks of `Client(hooks=[...])`
see the messages of all its producers and consumers. The client logs an exception of a
hook and continues. An exception that leaves the block of `around_handler` counts as an
exception of the handler.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

import msgspec

from rmq._fastpath.client.messages import Delivery, ReceivedMessage, SendResult
from rmq.client.handlers import Handler
from rmq.client.message import Message
from rmq.core.logs import SparseLog

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

Outcome = Sequence[SendResult] | BaseException | None
"""Results in the order of the messages, or an error; None if the outcome is unknown."""

AfterSend = Callable[[Outcome], None]


class Hook(Protocol):
    """A hook of a program; `messages` are the messages of one call."""

    def before_send(
        self, group: str, messages: Sequence[Message]
    ) -> tuple[Mapping[str, str], AfterSend]:
        """Return properties for all messages, and a function for the outcome."""

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Handle the messages that an iterator or `fetch` returns to the program."""

    def around_handler(
        self, group: str, messages: Sequence[ReceivedMessage]
    ) -> AbstractContextManager[object]:
        """Return a context that is open while a handler of `run` works."""


class Hooks:
    """All hooks of a client, as its producers and consumers call them."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks

    @contextmanager
    def watch_send(
        self, group: str, messages: Sequence[Message]
    ) -> Iterator["WatchedSend"]:
        """Call the hooks before and after a send; the sender sets `outcome` or calls
        `follow`.
        """
        sending = WatchedSend(self._hooks, group, messages)
        try:
            yield sending
        except BaseException as error:
            sending.end(error)
            raise
        if not sending.is_followed:
            sending.end(sending.outcome)

    def after_receive(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Call each hook."""
        for hook in self._hooks:
            with _log_errors():
                hook.after_receive(group, messages)

    def wrap_handler(self, group: str, handler: Handler) -> Handler:
        """Return a handler inside the contexts of the hooks."""

        async def call_watched(
            given: ReceivedMessage | list[ReceivedMessage],
        ) -> object:
            messages = given if isinstance(given, list) else [given]
            with ExitStack() as stack:
                for hook in self._hooks:
                    with _log_errors():
                        stack.enter_context(hook.around_handler(group, messages))
                found = handler(given)
                return await found if inspect.isawaitable(found) else found

        return call_watched


class WatchedSend:
    """A call of a producer; `messages` replace the program's messages."""

    def __init__(
        self, hooks: Sequence[Hook], group: str, messages: Sequence[Message]
    ) -> None:
        self.outcome: Outcome = None
        self.is_followed = False
        self._afters: list[AfterSend] = []
        added: dict[str, str] = {}
        for hook in hooks:
            with _log_errors():
                properties, after = hook.before_send(group, messages)
                added.update(properties)
                self._afters.append(after)
        self.messages = (
            [_add_properties(each, added) for each in messages] if added else messages
        )

    def follow(self, delivery: Delivery) -> None:
        """End the call with the outcome of a delivery."""
        self.is_followed = True
        delivery.add_done_callback(self._end_delivery)

    def _end_delivery(self, delivery: Delivery) -> None:
        error = delivery.exception()
        self.end([delivery.result()] if error is None else error)

    def end(self, outcome: Outcome) -> None:
        """Pass the outcome to each hook."""
        for after in self._afters:
            with _log_errors():
                after(outcome)


def _add_properties(message: Message, added: Mapping[str, str]) -> Message:
    """Return a message with more properties; the program's properties win."""
    properties = {**added, **(message.properties or {})}
    return msgspec.structs.replace(message, properties=properties)


@contextmanager
def _log_errors() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("a hook failed, its client continues")
