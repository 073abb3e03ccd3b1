"""The part of HTTP/2 that sends an error to gRPC clients on ports without gRPC.

gRPC clients show the text of a GOAWAY frame to their users.
"""

from typing import Final

from rmq.core.extras import install_command

START: Final = b"PRI * HTTP/2"
ALPN_NAME: Final = "h2"
GRPC_ADVICE: Final = (
    "the peer is a gRPC client (HTTP/2), but this port speaks the remoting protocol: "
    "connect to the listenPort of a broker whose plugin grpc is enabled "
    "(docs/clients/grpc.md)"
)
AGAIN: Final = "HTTP/2 over TLS without ALPN is served from the next connection on"
SETTINGS, GOAWAY, HTTP_1_1_REQUIRED = 0x4, 0x7, 0xD


def goaway_frames(text: str) -> bytes:
    """Return HTTP/2 frames: empty SETTINGS, then GOAWAY with a text for people."""
    payload = bytes(4) + HTTP_1_1_REQUIRED.to_bytes(4) + text.encode()
    settings = bytes(3) + bytes([SETTINGS, 0]) + bytes(4)
    return settings + len(payload).to_bytes(3) + bytes([GOAWAY, 0]) + bytes(4) + payload


def install_advice() -> str:
    """Return the answer of a broker without the gRPC libraries to a gRPC client."""
    return (
        "the peer is a gRPC client (HTTP/2): this broker serves it after "
        f"`{install_command('grpc')}` and a restart"
    )
