"""ConsoleConfig: the keys of the console."""

from enum import StrEnum

from rmq.config.option import Configuration, option


class ConsoleTls(StrEnum):
    """Whether browsers reach the console by https."""

    off = "off"
    on = "on"
    proxy = "proxy"


class ConsoleConfig(Configuration):
    """Keys that only rmq has; Java's dashboard is a separate program."""

    console: bool = option(
        False, key="rmq.console", doc="serve the console, a page for browsers"
    )
    console_port: int = option(
        10_920,
        key="rmq.consolePort",
        low=0,
        high=65535,
        doc="port of the console; 0 takes any free port",
    )
    console_any_port: bool = option(
        False,
        key="rmq.consoleAnyPort",
        doc="use any free port if another process has rmq.consolePort",
    )
    console_host: str = option(
        "127.0.0.1",
        key="rmq.consoleHost",
        doc=(
            "address for rmq.consolePort; other addresses than loopback need "
            "authenticationEnabled"
        ),
    )
    console_tls: ConsoleTls = option(
        ConsoleTls.off,
        key="rmq.consoleTls",
        doc=(
            "on: https with the certificate of tls.server.certPath; proxy: a proxy in "
            "front of the console speaks https; off: http"
        ),
    )
    console_write: bool = option(
        False,
        key="rmq.consoleWrite",
        doc="let the console change topics, groups and offsets, and send messages",
    )
    console_hosts: str = option(
        "",
        key="rmq.consoleHosts",
        doc=(
            "host names by which browsers reach the console, separated by ,; "
            "addresses and localhost need no entry"
        ),
    )

    @property
    def is_https(self) -> bool:
        """Whether browsers reach the console by https; then cookies are sent only over
        https.
        """
        return self.console_tls is not ConsoleTls.off

    def names(self) -> frozenset[str]:
        """Return the configured names, in small letters."""
        parts = (part.strip().lower() for part in self.console_hosts.split(","))
        return frozenset(part for part in parts if part)
