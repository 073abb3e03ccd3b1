"""Why connections end, for people."""

from collections.abc import Callable
from typing import Final

from rmq._fastpath.reactor.connections import EventKind
from rmq._fastpath.reactor.reactor import Reactor
from rmq.core.logs import Foreign
from rmq.remoting import http2

REASONS: Final = {
    EventKind.PEER_CLOSED: "closed by the peer",
    EventKind.CONNECTION_BROKEN: "connection broken",
    EventKind.FRAME_TOO_LARGE: "a frame is larger than the limit",
    EventKind.FRAME_TOO_SMALL: "a frame is too small for a header",
    EventKind.HEADER_TOO_LARGE: "a header is longer than its frame, or than 1 MiB",
    EventKind.READER_TOO_SLOW: "the peer does not read its answers",
    EventKind.OUT_OF_MEMORY: "no memory for its buffers",
    EventKind.NOT_STORED: "its message could not be stored",
    EventKind.RULE_BROKEN: "it broke a rule of HTTP/2",
    EventKind.PEER_FLOODS: "it sends too many empty frames, or resets",
    EventKind.CONNECTION_CUT: "closed by the peer without the end of TLS",
    EventKind.TLS_FAILED: "its TLS records are not valid",
    EventKind.TLS_WITHOUT_DATA: "too many of its TLS records have no data",
}
QUIET: Final = (
    EventKind.PEER_CLOSED,
    EventKind.CONNECTION_BROKEN,
    EventKind.CONNECTION_CUT,
)
"""Ends that need no line in the log."""


def describe_end(
    reactor: Reactor,
    kind: EventKind,
    token: int,
    refuse_http2: Callable[[], str | None],
) -> str:
    """Return the reason of an end; a gRPC client gets it, too."""
    if kind == EventKind.FRAME_TOO_LARGE:
        start = reactor.connections.received_bytes(token, len(http2.START))
        if start == http2.START:
            advice = refuse_http2() or http2.AGAIN
            reactor.send(token, http2.goaway_frames(advice))
            return advice
    reason = REASONS[kind]
    if kind == EventKind.TLS_FAILED:
        layer = reactor.connections.tls_layer_of(token)
        return f"{reason}: {Foreign(layer.error if layer else '')}"
    return reason
