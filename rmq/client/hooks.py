"""Hooks: what watches a client's messages: each send, each hand-out, each handler.

`Client(hooks=[...])` has them for all its producers and consumers. A client without
hooks pays one test for each call. What a hook raises is logged, and stops no message;
only what leaves the block of `processing` counts as raised by the handler.
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
"""Places of messages in their order, or a failure; None if nobody learns it."""

AfterSend = Callable[[Outcome], None]


class Hook(Protocol):
    """What a program gives to its client; `messages` are those of one call."""

    def before_send(
        self, group: str, messages: Sequence[Message]
    ) -> tuple[Mapping[str, str], AfterSend]:
        """Return properties for all of them, and what learns the outcome."""

    def received(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Learn that an iterator or `fetch` hands messages out."""

    def processing(
        self, group: str, messages: Sequence[ReceivedMessage]
    ) -> AbstractContextManager[object]:
        """Return what is open while a handler of `run` has messages."""


class Hooks:
    """All hooks of a client, as its producers and consumers call them."""

    def __init__(self, hooks: Sequence[Hook]) -> None:
        self._hooks = hooks

    @contextmanager
    def sending(
        self, group: str, messages: Sequence[Message]
    ) -> Iterator["WatchedSend"]:
        """Watch a call that puts what becomes of it into `outcome`, or follows it."""
        sending = WatchedSend(self._hooks, group, messages)
        try:
            yield sending
        except BaseException as error:
            sending.end(error)
            raise
        if not sending.is_followed:
            sending.end(sending.outcome)

    def received(self, group: str, messages: Sequence[ReceivedMessage]) -> None:
        """Tell each hook."""
        for hook in self._hooks:
            with _logged():
                hook.received(group, messages)

    def wrap_handler(self, group: str, handler: Handler) -> Handler:
        """Return a handler that is watched."""

        async def watched(given: ReceivedMessage | list[ReceivedMessage]) -> object:
            messages = given if isinstance(given, list) else [given]
            with ExitStack() as stack:
                for hook in self._hooks:
                    with _logged():
                        stack.enter_context(hook.processing(group, messages))
                found = handler(given)
                return await found if inspect.isawaitable(found) else found

        return watched


class WatchedSend:
    """One call of a producer; `messages` are to be sent in place of those given."""

    def __init__(
        self, hooks: Sequence[Hook], group: str, messages: Sequence[Message]
    ) -> None:
        self.outcome: Outcome = None
        self.is_followed = False
        self._afters: list[AfterSend] = []
        added: dict[str, str] = {}
        for hook in hooks:
            with _logged():
                properties, after = hook.before_send(group, messages)
                added.update(properties)
                self._afters.append(after)
        self.messages = [_with(each, added) for each in messages] if added else messages

    def follow(self, delivery: Delivery) -> None:
        """Let the call end with the outcome of a delivery."""
        self.is_followed = True
        delivery.add_done_callback(self._delivered)

    def _delivered(self, delivery: Delivery) -> None:
        error = delivery.error()
        self.end([delivery.result()] if error is None else error)

    def end(self, outcome: Outcome) -> None:
        """Tell each hook the outcome."""
        for after in self._afters:
            with _logged():
                after(outcome)


def _with(message: Message, added: Mapping[str, str]) -> Message:
    """Return a message with more properties; those of the program stay."""
    properties = {**added, **(message.properties or {})}
    return msgspec.structs.replace(message, properties=properties)


@contextmanager
def _logged() -> Iterator[None]:
    try:
        yield
    except Exception:
        logger.exception("a hook failed; the messages go on")
