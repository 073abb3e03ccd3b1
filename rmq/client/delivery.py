"""FirstAttempt: the waiter of an enqueued message that was sent at once."""

from collections.abc import Callable

from rmq._fastpath.client_messages import Delivery, SendResult
from rmq.protocol.command import Command


class FirstAttempt:
    """Ends a delivery; after a failure `go_on` makes the other attempts."""

    __slots__ = ("_delivery", "_go_on")

    def __init__(self, delivery: Delivery, go_on: Callable[[Delivery], None]) -> None:
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
            self._go_on(self._delivery)

    def set_exception(self, _: BaseException) -> None:
        """Learn that there is none."""
        self._go_on(self._delivery)
