"""Link: one blocking connection, a request at a time.

For programs that send a few requests and end; they start without an event loop.
Requests from the server are ignored.
"""

import socket
from types import TracebackType
from typing import Final, Self

from rmq.errors import (
    ConnectFailed,
    InvokeTimeout,
    PeerClosed,
    PeerError,
    RemoteProtocolError,
)
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode

RECEIVE_SIZE: Final = 1 << 18


class Link:
    """A connection to one address, "host:port"."""

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = address
        self._decoder = FrameDecoder()
        self._opaque = 0
        self._socket = connect(address, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, request: Command) -> Command:
        """Send a request and wait for its answer, with any code."""
        self._opaque += 1
        request.opaque = self._opaque
        try:
            self._socket.sendall(encode(request))
            while True:
                data = self._socket.recv(RECEIVE_SIZE)
                if not data:
                    raise PeerClosed(f"{self.address} closed the connection")
                for command in self._decoder.feed(data):
                    if command.is_response and command.opaque == request.opaque:
                        return command
        except TimeoutError as error:
            raise InvokeTimeout(
                f"{self.address} did not answer request {request.code} in time"
            ) from error
        except OSError as error:
            raise PeerClosed(f"{self.address}: {_say(error)}") from error
        except RemoteProtocolError as error:
            raise PeerError(
                f"the server on {self.address} does not speak the protocol of "
                f"RocketMQ: {error}"
            ) from error


def connect(address: str, timeout_s: float) -> socket.socket:
    """Return a socket to `host:port`; ConnectFailed if nothing listens there."""
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), timeout_s)
    except (OSError, ValueError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_say(error)}") from error


def _say(error: Exception) -> str:
    """Return the system's error text without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
