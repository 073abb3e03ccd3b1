"""Commands for containers."""

import click

from rmq.cli.admin.base import Output, register_command
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

IDENTITY_PARTS = 3


@register_command("addBroker")
@click.option("-c", "--brokerContainerAddr", "container", required=True)
@click.option(
    "-b",
    "--brokerConfigPath",
    "path",
    required=True,
    metavar="FILE",
    help="Configuration file on the host of the container.",
)
def add_broker(admin: AdminClient, container: str, path: str) -> Output:
    admin.request(container, RequestCode.ADD_BROKER, {"configPath": path})
    return [f"add broker to {container} success"]


@register_command("removeBroker")
@click.option("-c", "--brokerContainerAddr", "container", required=True)
@click.option(
    "-b", "--brokerIdentity", "identity", required=True, metavar="CLUSTER:NAME:ID"
)
def remove_broker(admin: AdminClient, container: str, identity: str) -> Output:
    parts = identity.split(":")
    if len(parts) != IDENTITY_PARTS or not parts[2].isdecimal():
        raise click.BadParameter("write CLUSTER:NAME:ID", param_hint="-b")
    names = ("brokerClusterName", "brokerName", "brokerId")
    fields = dict(zip(names, parts, strict=True))
    admin.request(container, RequestCode.REMOVE_BROKER, fields)
    return [f"remove broker from {container} success"]
