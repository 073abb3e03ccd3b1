"""Link: a connection on a blocking socket, for programs without an event loop.

The bytes and the pairing of answers are those of every client, in `ClientCodec`; there
is one request at a time, and requests of the server are not answered. A tool that asks
a few questions is done before an event loop is imported.
"""

import socket
import time
from types import TracebackType
from typing import Final, Self

from rmq._fastpath.client_codec import ClientCodec
from rmq.errors import (
    CertificateWanted,
    ConnectFailed,
    InvokeTimeout,
    PeerClosed,
    PeerError,
    RemoteProtocolError,
    RmqError,
    TlsWanted,
)
from rmq.outgoing.identity import ANONYMOUS, Identity, offers_tls
from rmq.outgoing.signing import Credentials, signer
from rmq.protocol.command import Command
from rmq.protocol.frames import decode, encode

RECEIVE_SIZE: Final = 1 << 18
NO_DEADLINE: Final = 0
"""`ask` has its own limit, and gives the request up."""


class Link:
    """A connection to one address, "host:port"."""

    def __init__(
        self, address: str, timeout_s: float, identity: Identity = ANONYMOUS
    ) -> None:
        self.address = address
        self._timeout_s = timeout_s
        self._identity = identity
        self._codec = ClientCodec(decode, encode)
        self._sign = None
        if identity.user:
            self._sign = signer(Credentials(identity.user, identity.password))
        self._has_heard = False
        self._socket = connect(address, timeout_s)
        if identity.trust is not None:
            self._encrypt(identity)

    def _encrypt(self, identity: Identity) -> None:
        assert identity.trust is not None
        try:
            self._socket = identity.trust.wrapped(self._socket, self.address)
        except RmqError:
            self._socket.close()
            raise

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

    def local_host(self) -> str:
        """Return the IP address of this end."""
        return str(self._socket.getsockname()[0])

    def certificate_ends(self) -> float | None:
        """Return when the server's certificate ends, in seconds; None without TLS."""
        if self._identity.trust is None:
            return None
        import ssl

        assert isinstance(self._socket, ssl.SSLSocket)
        certificate = self._socket.getpeercert() or {}
        return ssl.cert_time_to_seconds(str(certificate["notAfter"]))

    def ask(self, request: Command) -> Command:
        """Send a request and wait for its answer, with any code."""
        if self._sign is not None:
            self._sign(request)
        number = self._codec.ask(request, request, NO_DEADLINE)
        deadline = time.monotonic() + self._timeout_s
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(self._codec.take())
            while (left_s := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left_s)
                for asked, answer in self._codec.feed(self._received()):
                    if asked is request:
                        assert isinstance(answer, Command), (
                            "sends and pulls have others"
                        )
                        return answer
        except RemoteProtocolError as error:
            raise PeerError(
                f"the server on {self.address} does not speak the protocol of "
                f"RocketMQ: {error}"
            ) from error
        except OSError as error:
            raise self._broken(error) from error
        finally:
            self._codec.forget(number)
        raise InvokeTimeout(
            f"{self.address} did not answer request {request.code} in time"
        )

    def _received(self) -> bytes:
        """Return what arrives within the socket's time; nothing if nothing does."""
        try:
            data = self._socket.recv(RECEIVE_SIZE)
        except TimeoutError:
            return b""
        if not data:
            raise ConnectionResetError
        self._has_heard = True
        return data

    def _broken(self, error: OSError) -> PeerError:
        if isinstance(error, TimeoutError):
            return InvokeTimeout(f"{self.address} takes no more bytes")
        is_unheard = not (self._has_heard or self._identity.trust)
        if is_unheard and offers_tls(_parts(self.address), self._timeout_s):
            return TlsWanted(f"{self.address} wants TLS")
        text = f"{self.address} closed the connection"
        trust = self._identity.trust
        if trust and not trust.certificate and not self._has_heard:
            return CertificateWanted(f"{text} without an answer")
        if isinstance(error, ConnectionError):
            return PeerClosed(text)
        return PeerClosed(f"{text}: {_say(error)}")


def connect(address: str, timeout_s: float) -> socket.socket:
    """Return a socket to `host:port`; ConnectFailed if nothing listens there."""
    try:
        return socket.create_connection(_parts(address), timeout_s)
    except ConnectionRefusedError as error:
        raise ConnectFailed(f"{address} refuses the connection") from error
    except (OSError, ValueError, OverflowError) as error:
        raise ConnectFailed(f"cannot connect to {address}: {_say(error)}") from error


def _parts(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal()):
        raise ValueError("an address is HOST:PORT")
    return host.strip("[]"), int(port)


def _say(error: Exception) -> str:
    """Return the system's error text without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
