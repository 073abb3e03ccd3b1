"""ToolSettings: name servers, user, TLS and timeout of a command.

Order of precedence: flags; the context that `--context` or `RMQ_CONTEXT` names; the
environment (`NAMESRV_ADDR`, `RMQ_USER` with `RMQ_PASSWORD_FILE`); the context in use;
`~/.config/rmq/tools.toml`; `conf/tools.yml` of mqadmin in `$ROCKETMQ_HOME`. There is no
flag for a password: other users could see it.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rmq.cli.contexts import (
    list_contexts,
    read_context,
    read_text,
    read_values,
    settings_folder,
    used_context,
)
from rmq.cli.failures import exit_with_error
from rmq.cli.name_server_option import DEFAULT_NAME_SERVER, name_server_option
from rmq.client.admin import AdminClient
from rmq.core.errors import ConfigError, RmqError
from rmq.outgoing.address_lookup import look_up_all
from rmq.outgoing.identity import Identity, Trust

if TYPE_CHECKING:
    from rmq.client import Client

OPTIONS: Final = (
    ("namesrv", "NAMESRV_ADDR"), ("tls", ""), ("ca", ""), ("tls_cert", ""),
    ("tls_key", ""), ("tls_name", ""),
)  # fmt: skip
"""Options of servers and TLS, each with its variable of the environment."""

OVERRIDDEN: Final = {
    "namesrv": ("NAMESRV_ADDR",), "user": ("RMQ_USER", "RMQ_PASSWORD_FILE"),
}  # fmt: skip
"""Variables that a key of a named context replaces."""

_JAVA_LINE: Final = re.compile(r"\s*(accessKey|secretKey)\s*:\s*(.*?)\s*")


class ToolSettings(NamedTuple):
    """Name servers, user, TLS, and the timeout of a request in seconds."""

    name_servers: tuple[str, ...] = ()
    identity: Identity = Identity()
    timeout_s: float = 5.0

    def admin_client(self) -> AdminClient:
        """Return a blocking client; it connects at the first request."""
        return AdminClient(
            self._server_addresses, self.identity, timeout_s=self.timeout_s
        )

    def async_client(self) -> "Client":
        """Return a client for an event loop, which opens it."""
        # imported on use: most commands need no event loop
        from rmq.client import Client, Credentials

        user, password, trust = self.identity
        read_credentials = Credentials(user, password) if user else None
        return Client(self._server_addresses, tls=trust, credentials=read_credentials)

    @property
    def _server_addresses(self) -> tuple[str, ...]:
        return self.name_servers or (DEFAULT_NAME_SERVER,)


def connection_options() -> list[click.Parameter]:
    """Return the options of every command that connects to servers."""
    return [
        name_server_option(
            "Name servers; dns://HOST:PORT for all addresses of a host, "
            "http://HOST:PORT/PATH for the addresses on the page of an address server. "
            f"[default: NAMESRV_ADDR or {DEFAULT_NAME_SERVER}]"
        ),
        click.Option(
            ["--context"], metavar="NAME", shell_complete=complete_context,
            help="Use this context of `rmq context`.",
        ),
        click.Option(["--tls"], is_flag=True, help="Connect with TLS."),
        click.Option(
            ["--ca"], metavar="FILE",
            help="CA bundle (PEM) that signs server certificates.",
        ),
        click.Option(["--tls-cert"], metavar="FILE", help="Client certificate (PEM)."),
        click.Option(
            ["--tls-key"], metavar="FILE", help="Key (PEM) of the client certificate."
        ),
        click.Option(
            ["--tls-name"], metavar="NAME",
            help="Name in server certificates, * for any. [default: the host]",
        ),
        click.Option(
            ["--timeout"], type=click.FloatRange(0.1), default=5.0, show_default=True,
            metavar="SECONDS", help="Timeout of a request.",
        ),
    ]  # fmt: skip


def complete_context(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the names of contexts that begin with a text."""
    return [each for each in list_contexts() if each.startswith(incomplete)]


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the connection options; pass them to the command as `settings`."""

    def run(**options: Any) -> object:  # noqa: ANN401 - one for each option
        return command(settings=settings_or_exit(options), **options)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    own: list[click.Parameter] = getattr(command, "__click_params__", [])
    run.__click_params__ = [*own, *reversed(connection_options())]  # type: ignore[attr-defined] # as click does
    return run


def settings_or_exit(options: dict[str, Any]) -> ToolSettings:
    """Remove the connection options from `options`; exit if they are wrong."""
    try:
        return take_settings(options)
    except RmqError as error:
        exit_with_error(error)


def take_settings(options: dict[str, Any]) -> ToolSettings:
    """Remove the connection options from `options`; ConfigError if they are wrong."""
    environ = dict(os.environ)
    stored = _read_stored(options.pop("context", None), environ)
    namesrv, is_tls, *files = (
        options.pop(name) or environ.get(variable) or stored.get(name, "")
        for name, variable in OPTIONS
    )
    sources = [part.strip() for part in namesrv.split(";") if part.strip()]
    servers = look_up_all(sources)
    trust = Trust(*files) if is_tls or any(files) else None
    return ToolSettings(
        servers,
        Identity(*read_credentials(environ, stored), trust),
        options.pop("timeout"),
    )


def _read_stored(name: str | None, environ: dict[str, str]) -> dict[str, Any]:
    """Return the values of the context, or of tools.toml.

    A context that the command line names has precedence over the environment.
    """
    chosen = name or environ.get("RMQ_CONTEXT", "")
    if chosen:
        values = read_context(chosen, environ)
        for key, variables in OVERRIDDEN.items():
            for each in variables if key in values else ():
                environ.pop(each, None)
        return values
    used = used_context(environ)
    return read_context(used, environ) if used else read_settings_file(environ)


def read_credentials(
    environ: Mapping[str, str], stored: Mapping[str, Any]
) -> tuple[str, str]:
    """Return user and password; both empty for unsigned requests."""
    user = environ.get("RMQ_USER") or stored.get("user", "")
    if not user:
        return _java_credentials(environ)
    is_stored = user == stored.get("user")
    path = environ.get("RMQ_PASSWORD_FILE", "")
    if not path and is_stored:
        path = stored.get("password_file", "")
    if path:
        return user, read_text(Path(path).expanduser()).rstrip("\r\n")
    if is_stored and "password" in stored:
        return user, stored["password"]
    raise ConfigError(
        f"user {user} has no password: set RMQ_PASSWORD_FILE to a file with it"
    )


def read_settings_file(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read tools.toml; ConfigError names the wrong key or value."""
    path = settings_folder(environ) / "tools.toml"
    return read_values(path) if path.exists() else {}


def _java_credentials(environ: Mapping[str, str]) -> tuple[str, str]:
    home = environ.get("ROCKETMQ_HOME")
    path = Path(home or "", "conf", "tools.yml")
    if not home or not path.is_file():
        return "", ""
    found: dict[str, str] = {}
    for line in read_text(path).splitlines():
        if match := _JAVA_LINE.fullmatch(line.partition(" #")[0]):
            found[match[1]] = match[2].strip("'\"")
    user, password = found.get("accessKey", ""), found.get("secretKey", "")
    return (user, password) if user and password else ("", "")
