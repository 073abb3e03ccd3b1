"""The one trio task that waits for the reactor's epoll set and serves it.

trio is paid once per poll: one wait and one checkpoint, whatever the number of
connections and messages.
"""

from collections.abc import Callable

import trio

from rmq._fastpath import Reactor
from rmq.remoting.loop_clock import now_ms

Event = tuple[int, int, bytes | None]


async def serve_reactor(
    reactor: Reactor,
    handle_events: Callable[[list[Event]], None],
    after_poll: list[Callable[[], None]],
) -> None:
    """Poll whenever something is ready; other tasks run between two polls."""
    while True:
        await trio.lowlevel.wait_readable(reactor.epfd)
        while reactor.poll(now_ms()):
            for callback in after_poll:
                callback()
            while reactor.has_events:
                handle_events(reactor.take_events())
                for callback in after_poll:
                    callback()
                reactor.flush()
            await trio.lowlevel.checkpoint()
