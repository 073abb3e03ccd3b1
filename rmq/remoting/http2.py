"""HTTP/2, as far as needed to send gRPC clients an error that they show.

gRPC clients show the text of a GOAWAY frame to their users.
"""

from typing import Final

START: Final = b"PRI * HTTP/2"
ALPN_NAME: Final = "h2"
GRPC_ADVICE: Final = (
    "the peer is a gRPC client (HTTP/2), but rmq speaks the remoting protocol: connect "
    "to RocketMQ's proxy in front of rmq (docs/clients/grpc.md), or use a client such "
    "as rocketmq-client of Java"
)
SETTINGS, GOAWAY, HTTP_1_1_REQUIRED = 0x4, 0x7, 0xD


def _goaway_frames(text: str) -> bytes:
    """Return HTTP/2 frames: empty SETTINGS, then GOAWAY with a text for people."""
    payload = bytes(4) + HTTP_1_1_REQUIRED.to_bytes(4) + text.encode()
    settings = bytes(3) + bytes([SETTINGS, 0]) + bytes(4)
    return settings + len(payload).to_bytes(3) + bytes([GOAWAY, 0]) + bytes(4) + payload


ANSWER: Final = _goaway_frames(GRPC_ADVICE.removeprefix("it is "))
