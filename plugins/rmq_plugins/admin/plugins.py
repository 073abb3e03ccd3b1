"""Request 20001: the plugins of this broker with versions, registrations and codes."""

from rmq.plugin import BrokerContext, Connection
from rmq.protocol.bodies.plugins import LoadedPlugin, LoadedPluginsBody
from rmq.protocol.command import Command


class PluginHandler:
    """Lists plugins; Java's brokers have no plugins."""

    def __init__(self, broker: BrokerContext) -> None:
        self._broker = broker

    def list_plugins(self, request: Command, connection: Connection) -> Command:
        """Answer every plugin in the order of loading."""
        body = LoadedPluginsBody(
            plugins=[
                LoadedPlugin(
                    name=each.name,
                    version=each.version,
                    registered=list(each.registered),
                    codes=list(each.codes),
                )
                for each in self._broker.plugins()
            ]
        )
        return request.reply(body=body.encode())
