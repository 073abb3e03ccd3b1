"""Commands that export tables and figures of brokers to files."""

import json
import time
from pathlib import Path
from typing import Any

import click

from rmq.cli.admin.base import (
    Output,
    broker_or_cluster,
    cluster_option,
    register_command,
)
from rmq.cli.admin.base import resolve_brokers as wanted_brokers
from rmq.cli.admin.brokers import parse_config
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

folder_option = click.option(
    "-f",
    "--filePath",
    "folder",
    default="/tmp/rocketmq/export",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
)


def write(folder: Path, name: str, value: object) -> list[str]:
    """Write a JSON file; return a line with its path."""
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", "utf-8")
    except OSError as error:
        raise click.BadParameter(
            f"{path}: {error.strerror}", param_hint="-f"
        ) from error
    return [f"export {path} success"]


def _tables(admin: AdminClient, address: str) -> tuple[dict[str, Any], dict[str, Any]]:
    topics = admin.request_json(address, RequestCode.GET_ALL_TOPIC_CONFIG)
    groups = admin.request_json(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return topics["topicConfigTable"], groups["subscriptionGroupTable"]


@register_command("exportMetadata")
@broker_or_cluster
@click.option("-t", "--topic", "topics_only", is_flag=True, help="Topics only.")
@click.option(
    "-g", "--subscriptionGroup", "groups_only", is_flag=True, help="Groups only."
)
@click.option(
    "-s", "--specialTopic", "special", is_flag=True, help="Include system topics."
)
@folder_option
def export_metadata(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    folder: Path,
    *,
    topics_only: bool,
    groups_only: bool,
    special: bool,
) -> Output:
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for each in wanted_brokers(admin, broker, cluster):
        some_topics, some_groups = _tables(admin, each.address)
        if not special:
            code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
            own = set(admin.request_json(each.address, code)["topicList"])
            some_topics = {n: t for n, t in some_topics.items() if n not in own}
        topics |= some_topics
        groups |= some_groups
    if topics_only:
        return write(folder, "topic.json", {"topicConfigTable": topics})
    if groups_only:
        table = {"subscriptionGroupTable": groups}
        return write(folder, "subscriptionGroup.json", table)
    value: dict[str, object] = {
        "topicConfigTable": topics,
        "subscriptionGroupTable": groups,
        "exportTime": int(time.time() * 1_000),
    }
    return write(folder, "metadata.json", value)


@register_command("exportConfigs")
@cluster_option
@folder_option
def export_configs(admin: AdminClient, cluster: str | None, folder: Path) -> Output:
    brokers = wanted_brokers(admin, None, cluster, slaves=True)
    code = RequestCode.GET_BROKER_CONFIG
    value = {
        "brokerConfigs": {
            each.name: parse_config(admin.request(each.address, code).body)
            for each in brokers
        },
        "clusterScale": {
            "namesrvSize": len(admin.name_servers),
            "brokers": len(brokers),
        },
    }
    return write(folder, "configs.json", value)


@register_command("exportMetrics")
@cluster_option
@folder_option
def export_metrics(admin: AdminClient, cluster: str | None, folder: Path) -> Output:
    reports = {}
    for each in wanted_brokers(admin, None, cluster):
        topics, groups = _tables(admin, each.address)
        facts = admin.request_json(each.address, RequestCode.GET_BROKER_RUNTIME_INFO)[
            "table"
        ]
        reports[each.name] = {
            "runtimeVersion": {"rocketmqVersion": facts["brokerVersionDesc"]},
            "runtimeQuota": {
                "diskRatio": facts["commitLogDiskRatio"],
                "inTps": facts["putTps"],
                "outTps": facts["getTransferredTps"],
                "topicSize": len(topics),
                "groupSize": len(groups),
                "messageAverageSize": facts["putMessageAverageSize"],
            },
        }
    return write(folder, "metrics.json", {"evaluateReport": reports})
