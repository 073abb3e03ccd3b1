"""Link: a connection on a blocking socket, for programs without an event loop.

`ClientCodec` writes requests and pairs answers, as in every client. A link ignores
requests of the server. `request` sends one request at a time: a tool with few requests
ends before it could import an event loop. Many sends and pulls may be in flight, each
with a waiter: any object of the caller.
"""

import socket
import time
from types import TracebackType
from typing import Any, Final, Self

from rmq._fastpath.client.codec import (
    ANSWER_TO_PULL,
    ANSWER_TO_SEND,
    ClientCodec,
    PullTemplate,
    SendTemplate,
)
from rmq.core.address import Address
from rmq.core.errors import (
    CertificateWanted,
    ConnectFailed,
    InvokeTimeout,
    PeerClosed,
    PeerError,
    RemoteProtocolError,
    RmqError,
    TlsWanted,
)
from rmq.outgoing.identity import ANONYMOUS, Identity, is_incomplete, offers_tls
from rmq.outgoing.signing import Credentials, make_signer, pull_command, send_command
from rmq.protocol.command import Command
from rmq.protocol.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from rmq.protocol.frames import decode, encode

RECEIVE_SIZE: Final = 1 << 18
NO_DEADLINE: Final = 0
"""`request` has a separate time limit; other requests wait without a limit."""


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
            self._sign = make_signer(Credentials(identity.user, identity.password))
        self._has_received = False
        self._socket = connect(address, timeout_s)
        if identity.trust is not None:
            self._encrypt(identity)

    def _encrypt(self, identity: Identity) -> None:
        assert identity.trust is not None
        try:
            self._socket = identity.trust.wrap_socket(self._socket, self.address)
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
        """Return the time when the server's certificate expires, in seconds; None
        without TLS.
        """
        if self._identity.trust is None:
            return None
        import ssl

        assert isinstance(self._socket, ssl.SSLSocket)
        certificate = self._socket.getpeercert() or {}
        return ssl.cert_time_to_seconds(str(certificate["notAfter"]))

    def fileno(self) -> int:
        """Return the file descriptor, to wait for several links at once."""
        return self._socket.fileno()

    def request(self, request: Command) -> Command:
        """Send a request; return its answer with any code."""
        if self._sign is not None:
            self._sign(request)
        number = self._codec.request(request, request, NO_DEADLINE)
        deadline = time.monotonic() + self._timeout_s
        try:
            while (left_s := deadline - time.monotonic()) > 0:
                for asked, answer in self.receive_answers(left_s):
                    if asked is request:
                        assert isinstance(answer, Command), (
                            "sends and pulls use other methods"
                        )
                        return answer
        finally:
            self._codec.cancel(number)
        raise InvokeTimeout(
            f"{self.address} did not answer request {request.code} in time"
        )

    def begin(self, request: Command, waiter: object) -> None:
        """Begin any request; `receive_answers` pairs the waiter with the answer."""
        if self._sign is not None:
            self._sign(request)
        self._codec.request(request, waiter, NO_DEADLINE)

    def send(
        self,
        template: SendTemplate,
        properties: bytes,
        body: bytes,
        waiter: object,
        *,
        sys_flag: int = 0,
    ) -> None:
        """Begin a send; `receive_answers` pairs the waiter with a `SendAnswer`."""
        born_ms = int(time.time() * 1_000)
        if self._sign is None:
            self._codec.send(
                template,
                properties,
                body,
                waiter,
                NO_DEADLINE,
                "",
                born_ms=born_ms,
                sys_flag=sys_flag,
            )
            return
        command = send_command(template, properties, body, born_ms, sys_flag)
        self._sign(command)
        self._codec.request(
            command, waiter, NO_DEADLINE, kind=ANSWER_TO_SEND, queue=None, msg_ids=""
        )

    def pull(
        self,
        template: PullTemplate,
        waiter: object,
        *,
        offset: int,
        count: int,
        hold_ms: int = 0,
    ) -> None:
        """Begin a pull; the answer is a PullResult.

        The server holds a pull without a message for `hold_ms`.
        """
        sys_flag = PULL_SUBSCRIPTION | (PULL_SUSPEND if hold_ms else 0)
        if self._sign is None:
            self._codec.pull(
                template,
                waiter,
                NO_DEADLINE,
                offset=offset,
                count=count,
                hold_ms=hold_ms,
                sys_flag=sys_flag,
            )
            return
        command = pull_command(template, offset, count, hold_ms, sys_flag)
        self._sign(command)
        self._codec.request(command, waiter, NO_DEADLINE, kind=ANSWER_TO_PULL)

    def flush(self) -> None:
        """Send the requests that were begun; a PeerError ends the link."""
        if not self._codec.has_output:
            return
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(self._codec.take_output())
        except OSError as error:
            raise self._peer_error(error) from error

    def receive_answers(self, timeout_s: float) -> list[tuple[Any, Any]]:
        """Send the requests that were begun; return waiters with their answers.

        It returns after any bytes, which may be less than one answer. With a timeout of
        0 it does not wait. A PeerError ends the link; the server may have executed
        requests without an answer.
        """
        self.flush()
        try:
            self._socket.settimeout(timeout_s)
            return self._codec.feed(self._receive())
        except RemoteProtocolError as error:
            raise PeerError(
                f"the server on {self.address} does not speak the protocol of "
                f"RocketMQ: {error}"
            ) from error
        except OSError as error:
            raise self._peer_error(error) from error

    def _receive(self) -> bytes:
        """Return the bytes that arrive within the timeout of the socket; there may be
        none.
        """
        try:
            data = self._socket.recv(RECEIVE_SIZE)
        except (TimeoutError, BlockingIOError):
            return b""
        except OSError as error:
            if self._identity.trust is not None and is_incomplete(error):
                return b""
            raise
        if not data:
            raise ConnectionResetError
        self._has_received = True
        while self._identity.trust is not None and self._socket.pending():  # type: ignore[attr-defined] # a TLS socket
            data += self._socket.recv(RECEIVE_SIZE)
        return data

    def _peer_error(self, error: OSError) -> PeerError:
        if isinstance(error, TimeoutError):
            return InvokeTimeout(f"{self.address} does not receive the request in time")
        is_silent = not (self._has_received or self._identity.trust)
        if is_silent and offers_tls(Address.parse(self.address), self._timeout_s):
            return TlsWanted(f"{self.address} wants TLS")
        text = f"{self.address} closed the connection"
        trust = self._identity.trust
        if trust and not trust.certificate and not self._has_received:
            return CertificateWanted(f"{text} without an answer")
        if isinstance(error, ConnectionError):
            return PeerClosed(text)
        return PeerClosed(f"{text}: {_error_text(error)}")


def connect(address: str, timeout_s: float) -> socket.socket:
    """Return a socket to `host:port`; ConnectFailed if nothing listens there."""
    try:
        connected = socket.create_connection(Address.parse(address), timeout_s)
    except ConnectionRefusedError as error:
        raise ConnectFailed(f"{address} refuses the connection") from error
    except (OSError, ValueError, OverflowError) as error:
        raise ConnectFailed(
            f"cannot connect to {address}: {_error_text(error)}"
        ) from error
    # else an ack leaves only after the answer to a request that waits for messages
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected


def _error_text(error: Exception) -> str:
    """Return the text of a system error without its number."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)
