"""ProgressSink: shows the progress of a long operation of a tool."""

from typing import Protocol


class ProgressSink(Protocol):
    """Shows the parts of a work, one after another."""

    def begin(self, verb: str, total: int | None) -> None:
        """End the part so far, and begin the next one; `total` is in bytes."""

    def add(self, count: int, messages: int | None = None) -> None:
        """Count bytes, and the messages in them, as done."""


class NoProgress:
    """Shows nothing."""

    def begin(self, verb: str, total: int | None) -> None:
        """Begin a part."""

    def add(self, count: int, messages: int | None = None) -> None:
        """Count bytes and messages."""
