"""Forks: objects that get new locks in a child process.

A thread of the parent may hold a lock at a fork. The child has a copy of the lock, and
not the thread that would release it.
"""

import os
import weakref
from typing import Final, Protocol


class ForkAware(Protocol):
    """An object with a lock, or with connections of this process."""

    def on_fork(self) -> None:
        """Replace the locks; the child runs this before any code of its own."""


_aware: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()


def watch_forks(each: ForkAware) -> None:
    """Call `on_fork` of an object in each child, as long as the object exists."""
    _aware.add(each)


def _run_in_child() -> None:
    for each in list(_aware):
        each.on_fork()


os.register_at_fork(after_in_child=_run_in_child)
