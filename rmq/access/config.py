"""AuthConfig: the keys of access control, with Java's names.

Java's keys for classes and for sizes of caches have no effect: the only implementation
holds all users in memory.
"""

from typing import TypeVar

import msgspec

from rmq.access.networks import LOOPBACK, Network, parse_networks
from rmq.config.option import Configuration, option
from rmq.core.errors import BadValue, ConfigError

T = TypeVar("T", bound=msgspec.Struct)


class InitialUser(msgspec.Struct):
    """The value of `initAuthenticationUser`."""

    username: str
    password: str


class InnerCredentials(msgspec.Struct, rename="camel"):
    """The value of `innerClientAuthenticationCredentials`."""

    access_key: str
    secret_key: str


class AuthConfig(Configuration):
    """Known in Java as `AuthConfig`."""

    authentication_enabled: bool = option(
        False,
        key="authenticationEnabled",
        doc="requests must be signed by a user of users.json",
    )
    authorization_enabled: bool = option(
        False,
        key="authorizationEnabled",
        doc="users may send only the requests that their policies allow; needs "
        "authenticationEnabled",
    )
    allow_open: bool = option(
        False,
        key="rmq.allowOpen",
        doc="do not warn of ports that are open without authentication",
    )
    init_authentication_user: str = option(
        "",
        key="initAuthenticationUser",
        secret=True,
        doc="super user that a start creates if the user does not exist, "
        '`{"username":"…","password":"…"}`',
    )
    inner_client_authentication_credentials: str = option(
        "",
        key="innerClientAuthenticationCredentials",
        secret=True,
        doc="another super user; brokers sign their requests to name servers as "
        'this user, `{"accessKey":"…","secretKey":"…"}`',
    )
    authentication_whitelist: str = option(
        "",
        key="authenticationWhitelist",
        doc="request codes that need no signature, separated by commas",
    )
    authorization_whitelist: str = option(
        "",
        key="authorizationWhitelist",
        doc="request codes that every user may send, separated by commas",
    )
    auth_config_path: str = option(
        "",
        key="authConfigPath",
        path=True,
        doc="directory of users.json and acls.json; default: config/auth below "
        "storePathRootDir",
    )
    admin_from: str = option(
        "",
        key="rmq.auth.adminFrom",
        doc=(
            "addresses and networks, separated by commas, that may send requests about "
            "users and rules while access control is off; loopback may always do so"
        ),
    )
    authentication_provider: str = option(
        "",
        key="authenticationProvider",
        doc="no effect: a class of Java; rmq checks signatures itself",
    )
    authentication_metadata_provider: str = option(
        "",
        key="authenticationMetadataProvider",
        doc="no effect: a class of Java; users.json has the users",
    )
    authentication_strategy: str = option(
        "", key="authenticationStrategy", doc="no effect: every request is checked"
    )
    authorization_provider: str = option(
        "",
        key="authorizationProvider",
        doc="no effect: a class of Java; rmq checks policies itself",
    )
    authorization_metadata_provider: str = option(
        "",
        key="authorizationMetadataProvider",
        doc="no effect: a class of Java; acls.json has the policies",
    )
    authorization_strategy: str = option(
        "", key="authorizationStrategy", doc="no effect: every request is checked"
    )

    def __post_init__(self) -> None:
        if self.authorization_enabled and not self.authentication_enabled:
            raise BadValue(
                "authorizationEnabled",
                "true",
                "access keys would be accepted without a signature; set "
                "authenticationEnabled=true too",
            )
        self.admin_networks()

    def admin_networks(self) -> tuple[Network, ...]:
        """Return the networks that prepare users while access control is off.

        ConfigError if they cannot be read.
        """
        return LOOPBACK + parse_networks("rmq.auth.adminFrom", self.admin_from)

    def initial_users(self) -> list[tuple[str, str]]:
        """Return names and passwords of the super users to create."""
        users = []
        if self.init_authentication_user.strip():
            user = _read(
                InitialUser, "initAuthenticationUser", self.init_authentication_user
            )
            users.append((user.username, user.password))
        inner = self.inner_credentials()
        return users if inner is None else [*users, inner]

    def inner_credentials(self) -> tuple[str, str] | None:
        """Return the name and password with which brokers sign, or None.

        ConfigError if they cannot be read.
        """
        key, text = (
            "innerClientAuthenticationCredentials",
            self.inner_client_authentication_credentials,
        )
        if not text.strip():
            return None
        inner = _read(InnerCredentials, key, text)
        return inner.access_key, inner.secret_key


def codes_of(key: str, text: str) -> frozenset[int]:
    """Read a list of request codes."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal():
            raise BadValue(
                key,
                text,
                f"{word} is no request code; write codes such as 105,34; addresses are "
                "not allowed here",
            )
    return frozenset(map(int, words))


def _read(kind: type[T], key: str, text: str) -> T:
    """Read a value that is a JSON object; the error does not repeat the secret."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        wanted = ", ".join(kind.__struct_encode_fields__)
        raise ConfigError(
            f"{key}: must be a JSON object with the texts {wanted}", key
        ) from None
