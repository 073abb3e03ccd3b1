from typing import Self, final

@final
class Watermark:
    """An atomic offset with subscribers, and with requests to advance it."""

    def __new__(cls, value: int = 0) -> Self: ...
    @property
    def value(self) -> int:
        """The current offset."""

    def advance(self, value: int) -> bool:
        """Raise the offset to `value`; False if it was there already."""

    def reset(self, value: int) -> None:
        """Set the offset, also downwards: in recovery only, before any reader."""

    @staticmethod
    def minimum_of(first: Watermark, second: Watermark) -> Watermark:
        """Return a watermark that is always the smaller of two.

        It passes requests to both. Create it before either advances; each can be part
        of one.
        """

    def request_advance(self) -> None:
        """Let `wait_for_request` return, now or at its next call."""

    def wait_for_request(self) -> bool:
        """Block without the GIL until a request comes; False after `end_wait`."""

    def end_wait(self) -> None:
        """Let `wait_for_request` return False, once."""

    def subscribe(self) -> int:
        """Return a new eventfd that signals each advance; `unsubscribe` closes it."""

    def unsubscribe(self, descriptor: int) -> None:
        """Close a descriptor from `subscribe`."""
