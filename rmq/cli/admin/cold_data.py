"""Thresholds of groups for old messages, and the kernel's read-ahead in the log."""

from collections.abc import Mapping

import click

from rmq.cli.admin.base import Shown, admin_command, broker_or_cluster, targets
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

consumer_group = click.option("-g", "--consumerGroup", "group", required=True)


@admin_command("getColdDataFlowCtrInfo")
@broker_or_cluster
def show(admin: AdminClient, broker: str | None, cluster: str | None) -> Shown:
    """Show the groups with a threshold for old messages, which slows nobody down."""
    code = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
    return {
        each.address: admin.value(each.address, code)
        for each in targets(admin, broker, cluster)
    }


@admin_command("updateColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
@click.option("-v", "--threshold", type=click.IntRange(0), required=True)
def update(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    threshold: int,
) -> Shown:
    """Set a group's threshold for old messages, which slows nobody down."""
    return _told(
        admin, broker, cluster, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        body=f"{group}={threshold}\n".encode(),
    )  # fmt: skip


@admin_command("removeColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
def remove(
    admin: AdminClient, broker: str | None, cluster: str | None, group: str
) -> Shown:
    """Remove a group's threshold for old messages."""
    return _told(
        admin, broker, cluster, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        body=group.encode(),
    )  # fmt: skip


@admin_command("setCommitLogReadAheadMode")
@broker_or_cluster
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", type=click.Choice(["0", "1"]),
    required=True,
)  # fmt: skip
def set_mode(
    admin: AdminClient, broker: str | None, cluster: str | None, mode: str
) -> Shown:
    """Let the kernel read ahead in the log (0), or not (1)."""
    return _told(
        admin, broker, cluster, RequestCode.SET_COMMITLOG_READ_MODE,
        fields={"READ_AHEAD_MODE": mode},
    )  # fmt: skip


def _told(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    code: int,
    *,
    fields: Mapping[str, object] | None = None,
    body: bytes = b"",
) -> Shown:
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, code, fields, body)
    return [f"{each.address} success" for each in asked]
