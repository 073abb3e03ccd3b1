"""Link: a connection on a blocking socket, for programs without an event loop.

The bytes and the calls in flight are those of every client, in `ClientCodec`.
`ask` sends a request and waits for its answer. `start` and `arrived` keep many requests
open at once; `arrived` also returns requests of the server, which `ask` ignores.
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

Arrived = list[tuple[object, Command]]
"""Answers with the notes of their requests; a request of the server has None."""


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
        self._not_yet: tuple[type[Exception], ...] = (TimeoutError, BlockingIOError)
        self._socket = connect(address, timeout_s)
        if identity.trust is not None:
            self._encrypt(identity)

    def _encrypt(self, identity: Identity) -> None:
        import ssl

        assert identity.trust is not None
        self._not_yet += (ssl.SSLWantReadError,)
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

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def ask(self, request: Command) -> Command:
        """Send a request and wait for its answer, with any code."""
        mine = object()
        number = self.start(request, mine)
        deadline = time.monotonic() + self._timeout_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                for note, command in self.arrived(left_s):
                    if note is mine:
                        return command
        finally:
            self._codec.forget(number)
        raise InvokeTimeout(
            f"{self.address} did not answer request {request.code} in time"
        )

    def start(self, request: Command, note: object) -> int:
        """Queue a request for the next `arrived`; return its number."""
        assert note is not None, "that is the mark of a request of the server"
        if self._sign is not None:
            self._sign(request)
        return self._codec.ask(request, note, NO_DEADLINE)

    def arrived(self, wait_s: float) -> Arrived:
        """Send what is queued; return all that arrives in this time, if anything."""
        self.flush()
        try:
            return self._received(wait_s)
        except RemoteProtocolError as error:
            raise PeerError(
                f"the server on {self.address} does not speak the protocol of "
                f"RocketMQ: {error}"
            ) from error
        except OSError as error:
            raise self._broken(error) from error

    def flush(self) -> None:
        """Send what is queued."""
        if not self._codec.has_output:
            return
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(self._codec.take())
        except OSError as error:
            raise self._broken(error) from error

    def _received(self, wait_s: float) -> Arrived:
        """Read until nothing more is there; wait only for the first bytes."""
        found: Arrived = []
        self._socket.settimeout(wait_s)
        while True:
            try:
                data = self._socket.recv(RECEIVE_SIZE)
            except self._not_yet:
                return found
            if not data:
                raise ConnectionResetError
            self._has_heard = True
            for note, answer in self._codec.feed(data):
                assert isinstance(answer, Command), "only sends and pulls have others"
                found.append((note, answer))
            if not self._identity.trust:
                return found
            self._socket.settimeout(0)  # OpenSSL may hold more that is decrypted

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
