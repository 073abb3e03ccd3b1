"""Delivery: a message that `enqueue` has taken; its result comes later."""

from collections.abc import Callable, Generator
from typing import Any

from rmq._fastpath.client_messages import SendResult
from rmq.client.packing import Packed
from rmq.outgoing.wire import Waiter
from rmq.protocol.command import Command


class Delivery:
    """Await it, or ask `done` and `result`; nothing is lost if you do neither."""

    __slots__ = ("_callbacks", "_error", "_new_waiter", "_result", "_waiters")

    def __init__(self, new_waiter: Callable[[], Waiter]) -> None:
        self._new_waiter = new_waiter
        self._result: SendResult | None = None
        self._error: BaseException | None = None
        self._waiters: list[Waiter] | None = None
        self._callbacks: list[Callable[[Delivery], object]] | None = None

    def done(self) -> bool:
        """Whether the broker has answered, or the message has failed for good."""
        return self._result is not None or self._error is not None

    def result(self) -> SendResult:
        """Return the result, or raise the failure; only when done."""
        if self._error is not None:
            raise self._error
        if self._result is None:
            raise RuntimeError("this delivery is not done: await it")
        return self._result

    def error(self) -> BaseException | None:
        """Return the failure, if there is one."""
        return self._error

    def add_done_callback(self, function: "Callable[[Delivery], object]") -> None:
        """Call a function with this delivery when it is done, or now if it is."""
        if self.done():
            function(self)
        elif self._callbacks is None:
            self._callbacks = [function]
        else:
            self._callbacks.append(function)

    def set_result(self, result: SendResult) -> None:
        """End it; for the producer."""
        self._result = result
        self._finish()

    def set_exception(self, error: BaseException) -> None:
        """End it with a failure; for the producer."""
        self._error = error
        self._finish()

    def _finish(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, None
        for function in callbacks or ():
            function(self)

    def __await__(self) -> Generator[Any, Any, SendResult]:
        """Wait for the result."""
        if not self.done():
            waiter = self._new_waiter()
            if self._waiters is None:
                self._waiters = []
            self._waiters.append(waiter)
            yield from waiter.__await__()
        return self.result()


class FirstAttempt:
    """The waiter of an enqueued message; after a failure `go_on` makes the others."""

    __slots__ = ("_delivery", "_go_on", "_packed")

    def __init__(
        self,
        packed: Packed,
        delivery: Delivery,
        go_on: Callable[[Packed, Delivery], None],
    ) -> None:
        self._packed = packed
        self._delivery = delivery
        self._go_on = go_on

    def done(self) -> bool:
        """Never given up."""
        return False

    def set_result(self, answer: SendResult | Command) -> None:
        """Take the answer."""
        if isinstance(answer, SendResult):
            self._delivery.set_result(answer)
        else:
            self._go_on(self._packed, self._delivery)

    def set_exception(self, _: BaseException) -> None:
        """Learn that there is none."""
        self._go_on(self._packed, self._delivery)
