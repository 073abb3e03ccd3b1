"""TLS: its keys, contexts that follow their files, and decryption for the reactor.

A peer that opens with a TLS handshake is served like any other. A task decrypts its
bytes into a pair of connected sockets; the reactor has the other end. Plain connections
pay nothing for this.
Certificates are read again when their files change; open connections continue with
their old ones. A change that is not valid is logged and ignored.
"""

import logging
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path

import trio

from rmq.config.option import Configuration, build, option, read_properties
from rmq.core.errors import BadValue, ConfigError
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.remoting import http2

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

RELOAD_INTERVAL_S = 1.0
HANDSHAKE_TIMEOUT_S = 10.0
CHUNK_SIZE = 65_536
DEFAULT_FILE = "/etc/rocketmq/tls.properties"


class TlsMode(StrEnum):
    """Whether a port accepts TLS, plain connections, or both."""

    disabled = "disabled"
    permissive = "permissive"
    enforcing = "enforcing"


class ClientAuth(StrEnum):
    """Whether clients must present certificates."""

    none = "none"
    optional = "optional"
    require = "require"


class TlsConfig(Configuration):
    """Known in Java as `TlsSystemConfig`: there system properties, here keys."""

    mode: TlsMode = option(
        TlsMode.permissive,
        key="tls.server.mode",
        doc=(
            "disabled, permissive (plain connections, and TLS if there is a "
            "certificate) or enforcing (TLS only)"
        ),
    )
    cert_path: str = option(
        "",
        key="tls.server.certPath",
        path=True,
        doc="certificate chain of this server, PEM",
    )
    key_path: str = option(
        "", key="tls.server.keyPath", path=True, doc="private key of this server, PEM"
    )
    key_password: str = option(
        "",
        key="tls.server.keyPassword",
        secret=True,
        doc="password of tls.server.keyPath",
    )
    client_auth: ClientAuth = option(
        ClientAuth.none,
        key="tls.server.need.client.auth",
        doc="whether clients must have certificates: none, optional or require",
    )
    auth_client: bool = option(
        False,
        key="tls.server.authClient",
        doc="no effect: certificates of clients are always checked",
    )
    trust_path: str = option(
        "",
        key="tls.server.trustCertPath",
        path=True,
        doc="CA certificates that sign the certificates of clients, PEM",
    )
    enable: bool = option(False, key="tls.enable", doc="use TLS to the name servers")
    client_cert_path: str = option(
        "",
        key="tls.client.certPath",
        path=True,
        doc="certificate chain to present to name servers, PEM",
    )
    client_key_path: str = option(
        "",
        key="tls.client.keyPath",
        path=True,
        doc="private key for tls.client.certPath, PEM",
    )
    client_key_password: str = option(
        "",
        key="tls.client.keyPassword",
        secret=True,
        doc="password of tls.client.keyPath",
    )
    auth_server: bool = option(
        True,
        key="tls.client.authServer",
        doc="check the signatures of the name servers' certificates; Java does not",
    )
    client_trust_path: str = option(
        "",
        key="tls.client.trustCertPath",
        path=True,
        doc=(
            "CA certificates that sign the certificates of name servers, PEM; if "
            "empty, the system's CA certificates"
        ),
    )
    test_mode: bool = option(
        False,
        key="tls.test.mode.enable",
        doc=(
            "without tls.server.certPath, create a self-signed certificate at each "
            "start; for tests, needs the extra test-tls"
        ),
    )
    ciphers: str = option(
        "", key="tls.ciphers", doc="ciphers for TLS 1.2 and older, by OpenSSL's names"
    )
    protocols: str = option(
        "", key="tls.protocols", doc="TLSv1.2, TLSv1.3 or both; nothing older"
    )
    file: str = option(
        DEFAULT_FILE,
        key="tls.config.file",
        path=True,
        doc="properties file with more tls.* keys; the file may be absent",
    )


def read_tls_config(values: Mapping[str, str]) -> TlsConfig:
    """Build from the given keys and the keys of the TLS file; the given keys win."""
    path = Path(values.get("tls.config.file", DEFAULT_FILE))
    if path.is_file():
        values = {**read_properties(path), **values}
    config = build(TlsConfig, values)
    has_certificate = config.cert_path or config.test_mode
    if config.mode is TlsMode.enforcing and not has_certificate:
        raise BadValue(
            "tls.server.mode",
            "enforcing",
            "set a certificate and its key with tls.server.certPath and "
            "tls.server.keyPath",
        )
    if config.client_auth is not ClientAuth.none and not config.trust_path:
        raise BadValue(
            "tls.server.need.client.auth",
            config.client_auth,
            "set tls.server.trustCertPath to the CA that signs them; unchecked they "
            "prove nothing",
        )
    return config


class WatchedContext:
    """An SSL context and the files that it was built from."""

    def __init__(
        self, make: Callable[[], ssl.SSLContext], paths: tuple[str, ...]
    ) -> None:
        self._make = make
        self._paths = tuple(path for path in paths if path)
        self._seen = self._file_states()
        self.reloads = 0
        try:
            self.context = make()
        except (OSError, ValueError) as error:
            raise ConfigError(_describe_error(error, self._paths)) from error

    async def follow(self) -> None:
        """Check the files periodically, until cancelled."""
        while True:
            await trio.sleep(RELOAD_INTERVAL_S)
            seen = self._file_states()
            if seen != self._seen:
                self._seen = seen
                self._reload()

    def _reload(self) -> None:
        try:
            self.context = self._make()
        except (OSError, ValueError) as error:
            logger.error(
                "%s; the old certificates stay in use",
                _describe_error(error, self._paths),
            )
        else:
            self.reloads += 1
            logger.info("read the certificates again: %s", ", ".join(self._paths))

    def _file_states(self) -> list[tuple[int, int, int] | None]:
        found: list[tuple[int, int, int] | None] = []
        for path in self._paths:
            try:
                state = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((state.st_ino, state.st_mtime_ns, state.st_size))
        return found


def server_context(
    config: TlsConfig, protocol: str = http2.ALPN_NAME
) -> WatchedContext | None:
    """Return the context of our ports; None if no certificate is configured.

    In test mode it makes one and logs this. Peers that offer several protocols get
    `protocol`.
    """
    is_made = config.test_mode and not config.cert_path
    if config.mode is TlsMode.disabled or not (config.cert_path or is_made):
        return None
    if is_made:
        logger.warning(
            "tls.test.mode.enable=true: TLS with a new self-signed certificate; set "
            "tls.server.certPath so that clients can verify this server"
        )

    def make() -> ssl.SSLContext:
        context = _hardened_context(ssl.PROTOCOL_TLS_SERVER, config)
        # gRPC clients send nothing to a server that does not select HTTP/2
        context.set_alpn_protocols([protocol])
        if is_made:
            # imported on use: only tests have it
            from rmq.remoting.self_signed import add_self_signed

            add_self_signed(context)
        else:
            context.load_cert_chain(
                config.cert_path, config.key_path or None, config.key_password or ""
            )
        if config.client_auth is not ClientAuth.none:
            context.load_verify_locations(config.trust_path)
            is_required = config.client_auth is ClientAuth.require
            context.verify_mode = (
                ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
            )
        return context

    return WatchedContext(make, (config.cert_path, config.key_path, config.trust_path))


def client_context(config: TlsConfig, *, always: bool = False) -> WatchedContext | None:
    """Return the context of outgoing connections; None if they are plain.

    Addresses are numbers more often than names: the signer is checked, not the name.
    """
    if not config.enable and not always:
        return None

    def make() -> ssl.SSLContext:
        context = _hardened_context(ssl.PROTOCOL_TLS_CLIENT, config)
        context.check_hostname = False
        if not config.auth_server:
            context.verify_mode = ssl.CERT_NONE
        elif config.client_trust_path:
            context.load_verify_locations(config.client_trust_path)
        else:
            context.load_default_certs()
        if config.client_cert_path:
            context.load_cert_chain(
                config.client_cert_path,
                config.client_key_path or None,
                config.client_key_password or "",
            )
        return context

    paths = config.client_cert_path, config.client_key_path, config.client_trust_path
    return WatchedContext(make, paths)


def _hardened_context(protocol: int, config: TlsConfig) -> ssl.SSLContext:
    """Make a context without old protocols, renegotiation and compression."""
    context = ssl.SSLContext(protocol)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    wanted = {word.strip() for word in config.protocols.split(",") if word.strip()}
    if not wanted <= {"TLSv1.2", "TLSv1.3"}:
        raise BadValue("tls.protocols", config.protocols, "use TLSv1.2, TLSv1.3")
    if wanted == {"TLSv1.2"}:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    elif wanted == {"TLSv1.3"}:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if config.ciphers:
        context.set_ciphers(config.ciphers.replace(",", ":"))
    return context


async def serve_decrypted(
    stream: "trio.SSLStream[trio.SocketStream]",
    hand_over: Callable[[socket.socket], None],
    name: str,
) -> None:
    """Make the handshake, hand over the plain end, and copy bytes until one side ends.

    Neither side can fill memory: each direction holds one chunk besides the buffers of
    the sockets in between.
    """
    try:
        if not await _shake_hands(stream, name):
            return
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        inner = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        hand_over(theirs)
        async with inner, trio.open_nursery() as nursery:
            nursery.start_soon(_copy_bytes, inner, stream, nursery.cancel_scope)
            if not await _is_refused(stream, inner, name):
                await _copy_bytes(stream, inner, nursery.cancel_scope)
            nursery.cancel_scope.cancel()
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        logger.debug("the TLS connection of %s broke", name)
    except* OSError as errors:
        logger.error(
            "cannot serve the TLS connection of %s: %s",
            name,
            errors,
            extra=caused_by(name),
        )
    finally:
        await trio.aclose_forcefully(stream)


async def _shake_hands(stream: "trio.SSLStream[trio.SocketStream]", name: str) -> bool:
    try:
        with trio.fail_after(HANDSHAKE_TIMEOUT_S):
            await stream.do_handshake()
    except trio.TooSlowError:
        logger.warning(
            "closing %s: no TLS handshake in %s s",
            name,
            HANDSHAKE_TIMEOUT_S,
            extra=caused_by(name),
        )
    except trio.BrokenResourceError as error:
        logger.warning(
            "closing %s: TLS handshake: %s",
            name,
            Foreign(error.__cause__),
            extra=caused_by(name),
        )
    else:
        return True
    return False


async def _is_refused(
    stream: "trio.SSLStream[trio.SocketStream]", inner: trio.SocketStream, name: str
) -> bool:
    """Carry the first bytes; True if they are HTTP/2, which is answered, or none."""
    data = await stream.receive_some(CHUNK_SIZE)
    if not data.startswith(http2.START):
        await inner.send_all(data)
        return not data
    await stream.send_all(http2.ANSWER)
    logger.warning("closing %s: %s", name, http2.GRPC_ADVICE, extra=caused_by(name))
    return True


async def _copy_bytes(
    source: trio.abc.Stream, target: trio.abc.Stream, end: trio.CancelScope
) -> None:
    while data := await source.receive_some(CHUNK_SIZE):
        await target.send_all(data)
    end.cancel()


def _describe_error(error: Exception, paths: tuple[str, ...]) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return f"TLS with {', '.join(paths) or 'no files'}: {reason or error}"
