"""Commands for controllers: -a has some addresses, and the leader answers."""

import time
from typing import Any

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    cluster_option,
    interval_option,
    print_output,
    register_command,
)
from rmq.cli.admin.brokers import parse_config
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.core.errors import ConnectFailed
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode

controller_option = click.option(
    "-a", "--controllerAddress", "controllers", required=True, metavar="HOST:PORT;…"
)


@register_command("getControllerMetaData")
@controller_option
def get_controller_meta_data(admin: AdminClient, controllers: str) -> Output:
    fields = _metadata(admin, controllers)
    peers = (fields.get("peers") or "").strip(";")
    return {
        "controllerGroup": fields.get("group"),
        "controllerLeaderId": fields.get("controllerLeaderId"),
        "controllerLeaderAddress": fields.get("controllerLeaderAddress"),
        "peers": peers.replace(";", " "),
    }


@register_command("getSyncStateSet")
@controller_option
@click.option("-b", "--brokerName", "name", metavar="NAME")
@cluster_option
def get_sync_state_set(
    admin: AdminClient, controllers: str, name: str | None, cluster: str | None
) -> Output:
    if not name and not cluster:
        raise click.UsageError("give a group with -b, or a cluster with -c")
    names = [name] if name else sorted({each.name for each in admin.brokers(cluster)})
    code = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
    leader = _find_leader(admin, controllers)
    found = admin.request_json(leader, code, body=fastjson.dump_json(names))
    table = found.get("replicasInfoTable") or {}
    rows = [row for name in sorted(table) for row in _member_rows(name, table[name])]
    columns = (
        "brokerName", "brokerId", "brokerAddress", "master", "inSync", "alive",
        "masterEpoch", "syncStateSetEpoch",
    )  # fmt: skip
    return Table(columns, rows)


def _member_rows(name: str, info: dict[str, Any]) -> list[tuple[object, ...]]:
    return sorted(
        (
            name,
            each["brokerId"],
            each["brokerAddress"],
            each["brokerId"] == info.get("masterBrokerId"),
            is_in_sync,
            each["alive"],
            info["masterEpoch"],
            info["syncStateSetEpoch"],
        )
        for key, is_in_sync in (("inSyncReplicas", True), ("notInSyncReplicas", False))
        for each in info.get(key) or []
    )


@register_command("getBrokerEpoch")
@click.option("-b", "--brokerName", "name", metavar="NAME")
@cluster_option
@interval_option
def get_broker_epoch(
    admin: AdminClient, name: str | None, cluster: str | None, interval: float | None
) -> Output:
    if not name and not cluster:
        raise click.UsageError("give a group with -b, or a cluster with -c")
    asked = [each for each in admin.brokers(cluster) if name in (None, each.name)]
    if not asked:
        raise click.ClickException(f"no broker of {name} is registered")
    while interval is not None:
        print_output(_epoch_table(admin, asked), as_json=False)
        time.sleep(interval)
    return _epoch_table(admin, asked)


def _epoch_table(admin: AdminClient, asked: list[BrokerAddress]) -> Table:
    rows: list[tuple[object, ...]] = []
    for each in asked:
        found = admin.request_json(each.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        epochs = found.get("epochList") or []
        ends = [epoch["startOffset"] for epoch in epochs[1:]] + [found["maxOffset"]]
        place = each.name, found["brokerId"], each.address
        rows += [
            (*place, epoch["epoch"], epoch["startOffset"], end)
            for epoch, end in zip(epochs, ends, strict=True)
        ]
    columns = (
        "brokerName", "brokerId", "brokerAddress", "epoch", "startOffset", "endOffset",
    )  # fmt: skip
    return Table(columns, rows)


@register_command("electMaster")
@controller_option
@click.option("-b", "--brokerId", "broker_id", type=int, required=True)
@click.option("-bn", "--brokerName", "name", required=True, metavar="NAME")
@click.option("-c", "--clusterName", "cluster", required=True, metavar="NAME")
def elect_master(
    admin: AdminClient, controllers: str, broker_id: int, name: str, cluster: str
) -> Output:
    fields = {
        "clusterName": cluster, "brokerName": name, "brokerId": broker_id,
        "designateElect": "true",
    }  # fmt: skip
    code = RequestCode.CONTROLLER_ELECT_MASTER
    answer = admin.request(_find_leader(admin, controllers), code, fields).ext_fields
    return {
        "clusterName": cluster,
        "brokerName": name,
        "brokerMasterAddr": answer.get("masterAddress"),
        "masterEpoch": answer.get("masterEpoch"),
        "syncStateSetEpoch": answer.get("syncStateSetEpoch"),
    }


@register_command("cleanBrokerMetadata")
@controller_option
@click.option("-b", "--brokerControllerIdsToClean", "ids", metavar="1;2;3")
@click.option("-bn", "--brokerName", "name", required=True, metavar="NAME")
@cluster_option
@click.option("-l", "--cleanLivingBroker", "is_living", is_flag=True)
def clean_broker_metadata(
    admin: AdminClient,
    controllers: str,
    ids: str | None,
    name: str,
    cluster: str | None,
    *,
    is_living: bool,
) -> Output:
    fields: dict[str, object] = {
        "brokerName": name, "isCleanLivingBroker": str(is_living).lower(),
    }  # fmt: skip
    if cluster:
        fields["clusterName"] = cluster
    if ids:
        fields["brokerControllerIdsToClean"] = ids
    admin.request(
        _find_leader(admin, controllers), RequestCode.CLEAN_BROKER_DATA, fields
    )
    return [f"clear broker {name} metadata from controller success!"]


@register_command("getControllerConfig")
@controller_option
def get_controller_config(admin: AdminClient, controllers: str) -> Output:
    code = RequestCode.GET_CONTROLLER_CONFIG
    found = {
        each: parse_config(admin.request(each, code).body)
        for each in controllers.split(";")
    }
    return next(iter(found.values())) if len(found) == 1 else dict(found)


@register_command("updateControllerConfig")
@controller_option
@click.option("-k", "--key", required=True)
@click.option("-v", "--value", required=True)
def update_controller_config(
    admin: AdminClient, controllers: str, key: str, value: str
) -> Output:
    body = f"{key}={value}\n".encode()
    addresses = controllers.split(";")
    for each in addresses:
        admin.request(each, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
    return [f"update controller config success! {each}" for each in addresses]


def _metadata(admin: AdminClient, controllers: str) -> dict[str, str]:
    """Return metadata from the first controller that knows the leader."""
    code = RequestCode.CONTROLLER_GET_METADATA_INFO
    found: dict[str, str] | None = None
    failure: ConnectFailed | None = None
    for each in controllers.split(";"):
        try:
            found = admin.request(each, code).ext_fields
        except ConnectFailed as error:
            failure = error
            continue
        if found.get("controllerLeaderAddress"):
            break
    if found is None:
        assert failure is not None, "there is at least one address"
        raise failure
    return found


def _find_leader(admin: AdminClient, controllers: str) -> str:
    leader = _metadata(admin, controllers).get("controllerLeaderAddress")
    if not leader:
        raise click.ClickException(f"the controllers {controllers} have no leader")
    return leader
