"""Request 26: the configuration in effect, as text of Java's properties."""

from rmq.broker.context import BrokerContext, Connection
from rmq.config import describe
from rmq.protocol.bodies.common import DataVersion
from rmq.protocol.command import Command
from rmq.protocol.headers.admin import GetBrokerConfigResponseHeader


class ConfigHandler:
    """The configuration part of Java's `AdminBrokerProcessor`."""

    def __init__(self, broker: BrokerContext) -> None:
        self._configs = (broker.config, broker.store_config)
        self._version = DataVersion(timestamp=broker.boot_ms)

    def show(self, request: Command, connection: Connection) -> Command:
        """Answer every key with its value; secret ones stay here."""
        lines = {
            f"{key}={value}\n"
            for config in self._configs
            for key, value, _is_default in describe(config)
        }
        header = GetBrokerConfigResponseHeader(version=self._version.encode().decode())
        return request.reply(header=header, body="".join(sorted(lines)).encode())
