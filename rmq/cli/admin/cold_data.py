"""Commands for cold-data thresholds of groups, and for read-ahead in the log."""

import click

from rmq.cli.admin.base import (
    Output,
    broker_or_cluster,
    register_command,
    resolve_brokers,
    send_to_brokers,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

consumer_group = click.option(
    "-g", "--consumerGroup", "group", required=True, help="Consumer group."
)


@register_command("getColdDataFlowCtrInfo")
@broker_or_cluster
def get_cold_data_info(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    code = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
    return {
        each.address: admin.request_json(each.address, code)
        for each in resolve_brokers(admin, broker, cluster)
    }


@register_command("updateColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
@click.option(
    "-v", "--threshold", type=click.IntRange(0), required=True,
    help="Bytes of cold data in five seconds.",
)  # fmt: skip
def update_cold_data_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    threshold: int,
) -> Output:
    brokers = resolve_brokers(admin, broker, cluster)
    code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
    body = f"{group}={threshold}\n".encode()
    return send_to_brokers(admin, brokers, code, body=body)


@register_command("removeColdDataFlowCtrGroupConfig")
@broker_or_cluster
@consumer_group
def remove_cold_data_group(
    admin: AdminClient, broker: str | None, cluster: str | None, group: str
) -> Output:
    brokers = resolve_brokers(admin, broker, cluster)
    code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
    return send_to_brokers(admin, brokers, code, body=group.encode())


@register_command("setCommitLogReadAheadMode")
@broker_or_cluster
@click.option(
    "-m", "--commitLogReadAheadMode", "mode", type=click.Choice(["0", "1"]),
    required=True, help="0 on, 1 off.",
)  # fmt: skip
def set_read_ahead_mode(
    admin: AdminClient, broker: str | None, cluster: str | None, mode: str
) -> Output:
    brokers = resolve_brokers(admin, broker, cluster)
    fields = {"READ_AHEAD_MODE": mode}
    return send_to_brokers(admin, brokers, RequestCode.SET_COMMITLOG_READ_MODE, fields)
