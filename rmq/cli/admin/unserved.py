"""Commands for features that rmq lacks: the broker's answer has the alternative."""

import click

from rmq.cli.admin.base import (
    Output,
    broker_or_cluster,
    register_command,
    registry,
    resolve_brokers,
)
from rmq.cli.admin.catalogue import UNSERVED
from rmq.client.admin import AdminClient


def _register_unserved(name: str, code: int) -> None:
    @register_command(name)
    @broker_or_cluster
    @click.argument("rest", nargs=-1, type=click.UNPROCESSED)
    def send_request(
        admin: AdminClient,
        broker: str | None,
        cluster: str | None,
        rest: tuple[str, ...],
    ) -> Output:
        asked = (
            resolve_brokers(admin, broker, cluster)
            if broker or cluster
            else admin.masters()
        )
        admin.request(asked[0].address, code)
        return [f"{asked[0].address} served request {code}; use Java's mqadmin"]

    registry[name].context_settings["ignore_unknown_options"] = True


for _name, _code in UNSERVED.items():
    _register_unserved(_name, _code)
