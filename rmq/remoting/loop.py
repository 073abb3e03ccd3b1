"""The one trio task that waits for the reactor's epoll set and serves it.

trio costs once per poll: one wait and one checkpoint, for any number of connections and
messages. While trio sleeps, `InnerLoop` serves compiled requests in its place, and
wakes this task only for events that Python must handle.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from rmq._fastpath.reactor.inner_loop import InnerLoop
from rmq._fastpath.reactor.reactor import Reactor
from rmq.remoting.loop_clock import now_ms

logger = logging.getLogger(__name__)

Event = tuple[int, int, bytes | None]

_IS_TAKEN: Final = trio.lowlevel.RunVar("an inner loop waits in this run", False)


async def serve_reactor(
    reactor: Reactor,
    handle_events: Callable[[list[Event]], None],
    after_poll: list[Callable[[], None]],
) -> None:
    """Poll whenever a descriptor is ready; other tasks run between two polls."""
    with inner_loop(reactor) as inner:
        while True:
            if inner is None or inner.is_broken:
                await trio.lowlevel.wait_readable(reactor.epfd)
            else:
                await trio.lowlevel.wait_readable(inner.signal_fd)
                inner.drain_signal()
                for callback in after_poll:
                    callback()
            while reactor.poll(now_ms()):
                for callback in after_poll:
                    callback()
                while reactor.has_events:
                    handle_events(reactor.take_events())
                    for callback in after_poll:
                        callback()
                    reactor.flush()
                await trio.lowlevel.checkpoint()


@contextmanager
def inner_loop(reactor: Reactor) -> Iterator[InnerLoop | None]:
    """Serve the reactor while trio sleeps; None if that is not possible.

    A run has at most one: the descriptors of other reactors are in trio's own set.
    """
    descriptor = trio_descriptor()
    if descriptor is None or _IS_TAKEN.get():
        yield None
        return
    try:
        inner = InnerLoop(reactor, descriptor, now_ms())
    except OSError as error:
        logger.warning("trio waits for the sockets itself: %s", error)
        yield None
        return
    _IS_TAKEN.set(True)
    trio.lowlevel.add_instrument(inner)  # type: ignore[arg-type] # it has the one hook
    try:
        yield inner
    finally:
        _IS_TAKEN.set(False)
        if not inner.is_broken:
            inner.stop_waiting()
            trio.lowlevel.remove_instrument(inner)  # type: ignore[arg-type] # as above


def trio_descriptor() -> int | None:
    """Return the descriptor of trio's own epoll set, which is private.

    pyproject.toml limits trio to the versions that were tested.

    None inside another event loop, and if this version of trio has no such descriptor.
    None with a clock other than the system's: its time to sleep is not real time.
    """
    if type(trio.lowlevel.current_clock()).__module__ != "trio._core._run":
        return None
    try:
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner  # no public name
        if runner.is_guest:
            return None
        descriptor = runner.io_manager._epoll.fileno()
    except AttributeError:
        return None
    return int(descriptor)
