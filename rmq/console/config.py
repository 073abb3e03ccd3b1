"""ConsoleConfig: the keys of the console."""

from rmq.config import Configuration, option


class ConsoleConfig(Configuration):
    """Keys of rmq alone; Java's dashboard is a program of its own."""

    console: bool = option(
        False, key="rmq.console", doc="serve the console, a page for browsers"
    )
    console_port: int = option(
        10_920,
        key="rmq.consolePort",
        low=0,
        high=65535,
        doc="port of the console; 0 takes any free one",
    )
    console_host: str = option(
        "127.0.0.1",
        key="rmq.consoleHost",
        doc="address of that port; beyond this machine only with authenticationEnabled",
    )
    console_write: bool = option(
        False,
        key="rmq.consoleWrite",
        doc="let the console change topics, groups and offsets, and send messages",
    )
    console_hosts: str = option(
        "",
        key="rmq.consoleHosts",
        doc="names by which browsers reach the console, separated by ,; addresses and "
        "localhost need no entry",
    )

    def names(self) -> frozenset[str]:
        """Return the configured names, in small letters."""
        parts = (part.strip().lower() for part in self.console_hosts.split(","))
        return frozenset(part for part in parts if part)
