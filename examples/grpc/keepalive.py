"""Let connections of the SDK end when the machine of the broker goes silent.

Import it before the first producer or consumer starts. gRPC then pings a silent broker
every ten seconds, and closes the connection 20 s after a ping without an answer. The
SDK for Python has no setting for this.
"""

from grpc import ChannelCredentials, aio

Options = list[tuple[str, int]]

KEEPALIVE = ("grpc.keepalive_time_ms", 10_000)
insecure_channel, secure_channel = aio.insecure_channel, aio.secure_channel


def open_insecure(target: str, options: Options) -> aio.Channel:
    """Open a channel of plain text with keepalive."""
    return insecure_channel(target, [*options, KEEPALIVE])


def open_secure(
    target: str, credentials: ChannelCredentials, options: Options
) -> aio.Channel:
    """Open a channel of TLS with keepalive."""
    return secure_channel(target, credentials, [*options, KEEPALIVE])


aio.insecure_channel, aio.secure_channel = open_insecure, open_secure
