"""Identity: the user of a tool, and the certificates that it trusts.

A user signs each request with HMAC-SHA1, as Java's clients do. `Trust` has the files of
TLS: the authorities that sign servers, and the client's own certificate. The name in
the certificate of a server must be the requested host, or `name`. `ANY_NAME` accepts
every name that a trusted authority has signed.
"""

import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.core.address import host_of
from rmq.core.errors import ConfigError, ConnectFailed, NotTrusted, TlsNotOffered

if TYPE_CHECKING:
    import ssl

ANY_NAME: Final = "*"
NOT_YET_VALID, EXPIRED, OTHER_NAME, OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's reasons to refuse a certificate."""


class Trust(NamedTuple):
    """Paths of PEM files for TLS.

    Args:
        ca (str, default ''): the authorities that sign servers. By default the
            authorities of the system are trusted.
        certificate (str, default ''): the certificate of this client, if servers want
            one.
        key (str, default ''): the private key of the certificate, if it is in a file
            of its own.
        name (str, default ''): the name in the certificates of servers. By default it
            must be the host of each address; "*" accepts every name.
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    name: str = ""

    def wrap_socket(self, plain: socket.socket, address: str) -> "ssl.SSLSocket":
        """Do the handshake; raises NotTrusted or ConnectFailed.

        ConfigError if a file cannot be used.
        """
        # plain connections need no OpenSSL, whose import takes 15 ms

        context = self.context()
        name = self.name or host_of(address)
        try:
            return context.wrap_socket(
                plain, server_hostname=None if name == ANY_NAME else name
            )
        except (OSError, ValueError) as error:
            raise handshake_failure(address, name, error) from error

    def context(self) -> "ssl.SSLContext":
        """Return a context of OpenSSL; ConfigError if a file cannot be used."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.name != ANY_NAME
        try:
            if self.ca:
                # allows trust in the certificate of a server without its authority
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.load_verify_locations(self.ca)
            else:
                context.load_default_certs()
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except OSError as error:
            files = ", ".join(part for part in self[:3] if part)
            raise ConfigError(f"TLS with {files}: {_error_text(error)}") from error
        return context


class Identity(NamedTuple):
    """A user, empty for unsigned requests, and TLS, None for plain connections."""

    user: str = ""
    password: str = ""
    trust: Trust | None = None


ANONYMOUS: Final = Identity()


def offers_tls(address: tuple[str, int], timeout_s: float) -> bool:
    """Whether a server answers a TLS handshake, with any certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(address, timeout_s) as plain,
            context.wrap_socket(plain),
        ):
            return True
    except OSError:
        return False


def is_tls_error(error: Exception) -> bool:
    """Whether OpenSSL has raised an error."""
    import ssl

    return isinstance(error, ssl.SSLError)


def is_incomplete(error: Exception) -> bool:
    """Whether a socket with TLS has received a part of a record and does not wait."""
    import ssl

    return isinstance(error, ssl.SSLWantReadError)


def handshake_failure(address: str, name: str, error: Exception) -> ConnectFailed:
    """Return the error of a TLS handshake: NotTrusted or TlsNotOffered."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return _not_trusted(address, name, error)
    return TlsNotOffered(address, _error_text(error))


def _not_trusted(
    address: str, name: str, error: "ssl.SSLCertVerificationError"
) -> NotTrusted:
    if error.verify_code == EXPIRED:
        return NotTrusted(address, "expired", "it has expired")
    if error.verify_code == NOT_YET_VALID:
        return NotTrusted(
            address, "early", "it is not valid yet by this machine's clock"
        )
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        return NotTrusted(address, "name", f"it is not for {name}")
    return NotTrusted(
        address,
        "signer",
        f"no trusted authority signed it ({error.verify_message})",
    )


def _error_text(error: Exception) -> str:
    """Return the text of the system or of OpenSSL, without error numbers."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error).replace("_", " ").lower()
