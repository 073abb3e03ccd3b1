"""TLS: its keys, and contexts that follow their files.

A reload of files is known in Java as `FileWatchService`.
`handshakes.py` has the handshakes, `reactor/tls_layer.pyx` the encryption.
Certificates are read again when their files change; open connections continue with
their old certificates. A change that is not valid is logged and ignored.
"""

import logging
import os
import ssl
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path

import trio

from rmq.config.option import Configuration, build, option, read_properties
from rmq.core.errors import BadValue, ConfigError
from rmq.core.logs import SparseLog
from rmq.remoting import http2

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

RELOAD_INTERVAL_S = 1.0
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
    """Known in Java as `TlsSystemConfig`: there they are system properties, here
    keys.
    """

    mode: TlsMode = option(
        TlsMode.permissive,
        key="tls.server.mode",
        doc=(
            "disabled, permissive (plain connections and TLS) or enforcing (TLS only)"
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
        True,
        key="tls.test.mode.enable",
        doc=(
            "if tls.server.certPath is empty and tls.server.mode is permissive, create "
            "a self-signed certificate for the first client with TLS"
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
    if config.mode is TlsMode.enforcing and not config.cert_path:
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
            "set tls.server.trustCertPath to the CA that signs them; without this "
            "check certificates prove nothing",
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
    """Return the context of the ports; None if no certificate is configured.

    Peers that offer several protocols get `protocol`.
    """
    if config.mode is TlsMode.disabled or not config.cert_path:
        return None

    def make() -> ssl.SSLContext:
        context = _bare_server_context(config, protocol)
        context.load_cert_chain(
            config.cert_path, config.key_path or None, config.key_password or ""
        )
        return context

    return WatchedContext(make, (config.cert_path, config.key_path, config.trust_path))


def port_context(config: TlsConfig) -> "WatchedContext | SelfSignedContext | None":
    """Return the context of the ports of a broker and a name server.

    None if the ports refuse TLS. ConfigError if a key or a file cannot be used.
    """
    return (
        SelfSignedContext(config) if is_self_signed(config) else server_context(config)
    )


def is_self_signed(config: TlsConfig) -> bool:
    """Return whether clients with TLS get a certificate that this process makes."""
    return (
        config.mode is TlsMode.permissive and config.test_mode and not config.cert_path
    )


class SelfSignedContext:
    """The context of our ports without a configured certificate."""

    def __init__(self, config: TlsConfig) -> None:
        """ConfigError if a key or a file cannot be used.

        The defaults need no check: a start makes no context for them, which takes 1 to
        4 ms.
        """
        self._config = config
        if config.protocols or config.ciphers or config.trust_path:
            self._make_bare()

    @cached_property
    def context(self) -> ssl.SSLContext:
        """The context; the first use makes its key and certificate, in 25 ms."""
        # imported on use: most processes have a certificate, or no TLS
        from rmq.remoting.self_signed import add_self_signed

        context = self._make_bare()
        add_self_signed(context)
        logger.warning(
            "a client uses TLS and this server has no certificate: it made a "
            "self-signed one, by which clients cannot verify it; set "
            "tls.server.certPath, or refuse TLS with tls.test.mode.enable=false"
        )
        return context

    def _make_bare(self) -> ssl.SSLContext:
        try:
            return _bare_server_context(self._config, http2.ALPN_NAME)
        except OSError as error:
            path = self._config.trust_path
            reason = error.strerror or error
            raise BadValue("tls.server.trustCertPath", path, reason) from error


def _bare_server_context(config: TlsConfig, protocol: str) -> ssl.SSLContext:
    """Return a server's context without its certificate."""
    context = _hardened_context(ssl.PROTOCOL_TLS_SERVER, config)
    # gRPC clients send nothing to a server that does not select HTTP/2
    context.set_alpn_protocols([protocol])
    if config.client_auth is not ClientAuth.none:
        context.load_verify_locations(config.trust_path)
        is_required = config.client_auth is ClientAuth.require
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


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
        try:
            context.set_ciphers(config.ciphers.replace(",", ":"))
        except ssl.SSLError as error:
            raise BadValue("tls.ciphers", config.ciphers, error) from error
    return context


def _describe_error(error: Exception, paths: tuple[str, ...]) -> str:
    reason = error.strerror if isinstance(error, OSError) else None
    return f"TLS with {', '.join(paths) or 'no files'}: {reason or error}"
