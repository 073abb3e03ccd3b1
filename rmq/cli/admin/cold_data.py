"""Thresholds of groups for old messages, and the kernel's read-ahead in the log."""

from collections.abc import Mapping

import click

from rmq.cli.admin.base import (
    Output,
    broker_or_cluster,
    register_command,
    resolve_brokers,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

consumer_group = click.option("-g", "--consumerGroup", "group", required=True)


@register_command("getColdDataFlowCtrInfo")
@broker_or_cluster
def get_cold_data_info(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    """Show the groups with a threshold for old messages, which slows nobody down."""
    code = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
    return {
        each.address: admin.value(each.address, code)
        for each in resolve_brokers(admin, broker, cluster)
    }


@register_command("updateColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
@click.option("-v", "--threshold", type=click.IntRange(0), required=True)
def update_cold_data_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    threshold: int,
) -> Output:
    """Set a group's threshold for old messages, which slows nobody down."""
    return _told(
        admin, broker, cluster, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        body=f"{group}={threshold}\n".encode(),
    )  # fmt: skip


@register_command("removeColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
def remove_cold_data_group(
    admin: AdminClient, broker: str | None, cluster: str | None, group: str
) -> Output:
    """Remove a group's threshold for old messages."""
    return _told(
        admin, broker, cluster, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        body=group.encode(),
    )  # fmt: skip


@register_command("setCommitLogReadAheadMode")
@broker_or_cluster
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", type=click.Choice(["0", "1"]),
    required=True,
)  # fmt: skip
def set_read_ahead_mode(
    admin: AdminClient, broker: str | None, cluster: str | None, mode: str
) -> Output:
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
) -> Output:
    asked = resolve_brokers(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, code, fields, body)
    return [f"{each.address} success" for each in asked]
