"""StoreSignals: the events that a store reports to its loops."""

from collections.abc import Callable

import msgspec


def _do_nothing() -> None:
    """Do nothing: no loop runs."""


class StoreSignals(msgspec.Struct, eq=False):
    """One callback for each event; `StoreService` connects them while it runs."""

    new_messages: Callable[[], None] = _do_nothing
    """Messages were stored."""

    timer_changed: Callable[[], None] = _do_nothing
    """The timer has made progress that is not durable yet."""
