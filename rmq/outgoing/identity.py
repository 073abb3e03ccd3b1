"""Identity: as whom a tool connects, and whom it trusts.

A user signs each request (HMAC-SHA1, as Java's clients do). `Trust` has the files of
TLS: the authorities that sign servers, and a certificate of our own. The name in a
server's certificate must be the host that was asked for, or `name`; `ANY_NAME` accepts
every name that a trusted authority has signed.
"""

import socket
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.core.address import host_of
from rmq.core.errors import ConfigError, ConnectFailed, NotTrusted

if TYPE_CHECKING:
    import ssl

ANY_NAME: Final = "*"
NOT_YET_VALID, EXPIRED, OTHER_NAME, OTHER_ADDRESS = 9, 10, 62, 64
"""OpenSSL's reasons to refuse a certificate."""


class Trust(NamedTuple):
    """Paths of PEM files; without `ca` the authorities of the system are trusted."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    name: str = ""

    def wrapped(self, plain: socket.socket, address: str) -> "ssl.SSLSocket":
        """Make the handshake; NotTrusted or ConnectFailed say what is wrong.

        ConfigError if one of our files cannot be used.
        """
        # imported on use: plain connections need no OpenSSL, 15 ms of every command
        import ssl

        context = self.context()
        name = self.name or host_of(address)
        try:
            return context.wrap_socket(
                plain, server_hostname=None if name == ANY_NAME else name
            )
        except ssl.SSLCertVerificationError as error:
            raise _not_trusted(address, name, error) from error
        except (OSError, ValueError) as error:
            raise ConnectFailed(
                f"{address} does not offer TLS: {_reason(error)}"
            ) from error

    def context(self) -> "ssl.SSLContext":
        """Return what OpenSSL needs; ConfigError if one of our files cannot be used."""
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.name != ANY_NAME
        try:
            if self.ca:
                # a server's own certificate may be trusted without its authority
                context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
                context.load_verify_locations(self.ca)
            else:
                context.load_default_certs()
            if self.certificate:
                context.load_cert_chain(self.certificate, self.key or None)
        except OSError as error:
            files = ", ".join(part for part in self[:3] if part)
            raise ConfigError(f"TLS with {files}: {_reason(error)}") from error
        return context


class Identity(NamedTuple):
    """A user, or nobody, and TLS, or plain connections."""

    user: str = ""
    password: str = ""
    trust: Trust | None = None


ANONYMOUS: Final = Identity()


def offers_tls(address: tuple[str, int], timeout_s: float) -> bool:
    """Whether a server answers a TLS handshake, whatever its certificate is."""
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


def _not_trusted(
    address: str, name: str, error: "ssl.SSLCertVerificationError"
) -> NotTrusted:
    if error.verify_code == EXPIRED:
        return NotTrusted(address, "expired", "it has expired")
    if error.verify_code == NOT_YET_VALID:
        return NotTrusted(address, "early", "it is not valid yet by the clock here")
    if error.verify_code in (OTHER_NAME, OTHER_ADDRESS):
        return NotTrusted(address, "name", f"it is not for {name}")
    return NotTrusted(
        address, "signer", f"nobody trusted signed it ({error.verify_message})"
    )


def _reason(error: Exception) -> str:
    """Return the system's or OpenSSL's words without numbers and source lines."""
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or error).replace("_", " ").lower()
