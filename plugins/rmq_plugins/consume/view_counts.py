"""Counts of the requests that compiled handlers have served, for the statistics."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeVar

COUNTED_AT_ONCE: Final = 100
"""Number of views whose requests are counted before other tasks run: 0.5 ms."""


class View(Protocol):
    """A view of the compiled pulls or POPs."""

    @property
    def has_served(self) -> bool:
        """True if it has served requests since they were counted."""


AnyView = TypeVar("AnyView", bound=View)


def count_views(
    views: Mapping[Any, AnyView], count_served: Callable[[AnyView], None]
) -> Iterator[None]:
    """Count the requests of all views since the last time, some at each step."""
    served = [view for view in views.values() if view.has_served]
    for number, view in enumerate(served, 1):
        count_served(view)
        if number % COUNTED_AT_ONCE == 0:
            yield
