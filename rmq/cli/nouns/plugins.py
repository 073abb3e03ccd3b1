"""The verb of `rmq plugins`."""

import click

from rmq.cli.admin.base import Output, Table, broker_option
from rmq.cli.nouns.verb import register_verb
from rmq.client.admin import AdminClient, BrokerAddress, NoBroker
from rmq.protocol.codes import OwnRequestCode


@register_verb("plugins", "ls")
@broker_option
@click.option(
    "--installed", is_flag=True, help="List the plugins installed here; ask no broker."
)
def list_plugins(admin: AdminClient, broker: str | None, *, installed: bool) -> Output:
    if installed:
        # imported on use: it loads all plugins
        from rmq.plugin.registry import PluginSet

        plugins = PluginSet()
        plugins.load()
        return Table(("name", "version"), list(plugins.versions().items()))
    brokers = admin.masters()
    if broker:
        brokers = [BrokerAddress("", broker, "0", broker)]
    if not brokers:
        raise NoBroker(admin.name_servers)
    rows = []
    for each in brokers:
        code = OwnRequestCode.GET_LOADED_PLUGINS
        for plugin in admin.request_json(each.address, code)["plugins"]:
            codes = " ".join(map(str, plugin["codes"]))
            parts = ", ".join(plugin["registered"])
            name, version = plugin["name"], plugin["version"]
            rows.append((each.name, name, version, codes, parts))
    return Table(("broker", "name", "version", "codes", "registers"), rows)
