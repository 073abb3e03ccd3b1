"""The only trio task that waits for the reactor's epoll set and serves it.

trio costs once per poll: one wait and one checkpoint, for any number of connections and
messages. While trio sleeps, `InnerLoop` serves requests in its place. Compiled handlers
need no Python there. Python handlers that are plain functions run there without a
current task. This task wakes up only for other work: replies that wait for the disk,
and handlers that start or wake a task.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
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
    serve = partial(serve_events, reactor, handle_events, after_poll)
    with inner_loop(reactor, serve) as inner:
        while True:
            if inner is None or inner.is_broken:
                await trio.lowlevel.wait_readable(reactor.epfd)
            else:
                await trio.lowlevel.wait_readable(inner.signal_fd)
                inner.drain_signal()
                for callback in after_poll:
                    callback()
            while reactor.poll(now_ms()):
                serve()
                await trio.lowlevel.checkpoint()


def serve_events(
    reactor: Reactor,
    handle_events: Callable[[list[Event]], None],
    after_poll: list[Callable[[], None]],
) -> None:
    """Serve the events that a poll left to Python, and send the answers.

    In trio's place there is no current task. So handlers and callbacks may start and
    wake tasks, but must not need a current task.
    """
    for callback in after_poll:
        callback()
    while reactor.has_events:
        handle_events(reactor.take_events())
        for callback in after_poll:
            callback()
        reactor.flush()


@contextmanager
def inner_loop(
    reactor: Reactor, serve: Callable[[], None]
) -> Iterator[InnerLoop | None]:
    """Serve the reactor while trio sleeps; None if this is not possible. `serve` serves
    the events for Python; there is no current task meanwhile. A trio run has at most
    one inner loop: the descriptors of other reactors are in trio's own set.
    """
    descriptor = trio_descriptor()
    if descriptor is None or _IS_TAKEN.get():
        yield None
        return
    try:
        inner = InnerLoop(reactor, descriptor, now_ms(), serve, seconds_left)
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
    None with another clock than the system's, because its time is not real time.
    """
    if type(trio.lowlevel.current_clock()).__module__ != "trio._core._run":
        return None
    try:
        runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner  # no public name
        if runner.is_guest:
            return None
        descriptor = runner.io_manager._epoll.fileno()
        seconds_left()
    except AttributeError:
        return None
    return int(descriptor)


def seconds_left() -> float:
    """Return the seconds for which trio may sleep; 0 if a task is ready."""
    runner = trio._core._run.GLOBAL_RUN_CONTEXT.runner  # no public name
    if runner.runq:
        return 0.0
    return runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
