"""Live: views as streams of events, computed once for all listeners of a view.

    event: full   the whole state, first
    event: diff   what has changed, see `diff`
    event: bye    {"why": …}, before the server ends the stream
    :             nothing has changed for a while

A view without listeners costs nothing.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import trio

from rmq.console.diff import UNCHANGED, find_changes
from rmq.core.errors import RequestRejected

logger = logging.getLogger(__name__)

PERIODS_S: Final = {
    "overview": 1.0,
    "group": 1.0,
    "topic": 1.0,
    "brokers": 5.0,
    "broker": 5.0,
}
LIST_PERIOD_S: Final = 2.0
SILENCE_S: Final = 10.0
MAX_EVENTS: Final = 32
"""Maximum number of events that a listener has not read; above it, its stream ends."""

Compute = Callable[[], Awaitable[dict[str, Any]]]


class _Channel:
    """One view with its query, and its listeners."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.full = b""
        self.listeners: set[trio.MemorySendChannel[bytes]] = set()
        self.scope = trio.CancelScope()


class Live:
    """All streams."""

    def __init__(self) -> None:
        self._channels: dict[str, _Channel] = {}

    @asynccontextmanager
    async def listen(
        self,
        view: str,
        query: Mapping[str, str],
        compute: Compute,
        nursery: trio.Nursery,
    ) -> AsyncIterator[trio.MemoryReceiveChannel[bytes]]:
        """Yield a channel with events of a view; the first listener starts the view."""
        key = repr((view, sorted(query.items())))
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel()
            period_s = PERIODS_S.get(view, LIST_PERIOD_S)
            nursery.start_soon(self._tick, key, channel, compute, period_s)
        send, receive = trio.open_memory_channel[bytes](MAX_EVENTS)
        if channel.full:
            send.send_nowait(channel.full)
        channel.listeners.add(send)
        try:
            yield receive
        finally:
            channel.listeners.discard(send)
            send.close()
            receive.close()
            if not channel.listeners:
                channel.scope.cancel()
                self._channels.pop(key, None)

    async def _tick(
        self, key: str, channel: _Channel, compute: Compute, period_s: float
    ) -> None:
        """Compute the state again and again, and send the changes."""
        with channel.scope:
            while True:
                try:
                    state = await compute()
                except RequestRejected as refusal:
                    _end(channel, refusal.remark)
                    break
                except Exception:  # supervises the views
                    logger.exception("a view of the console failed")
                    _end(channel, "This view failed. The log has the reason.")
                    break
                change = UNCHANGED
                if channel.state is None:
                    change = channel.full = encode_event("full", state)
                    _send_to_all(channel, channel.full)
                else:
                    change = find_changes(channel.state, state)
                    if change is not UNCHANGED:
                        channel.full = encode_event("full", state)
                        _send_to_all(channel, encode_event("diff", change))
                channel.state = state
                await trio.sleep(period_s)
        if self._channels.get(key) is channel:
            del self._channels[key]


def _send_to_all(channel: _Channel, data: bytes) -> None:
    """Queue an event for all; a listener that does not read is disconnected."""
    for each in list(channel.listeners):
        try:
            each.send_nowait(data)
        except trio.WouldBlock:
            each.close()
            channel.listeners.discard(each)


def _end(channel: _Channel, why: str) -> None:
    """Send the reason, and end the streams of all listeners."""
    _send_to_all(channel, encode_event("bye", {"why": why}))
    for each in list(channel.listeners):
        each.close()


def encode_event(name: str, data: Any) -> bytes:  # noqa: ANN401 - any JSON value
    """Return one event."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode(data))
