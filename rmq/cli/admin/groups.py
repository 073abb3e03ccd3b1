"""Commands for consumer groups."""

from typing import Any

import click

from rmq.cli.admin.base import (
    Output,
    bool_option,
    broker_or_cluster,
    group_option,
    register_command,
    resolve_brokers,
    send_to_brokers,
    topic_option,
)
from rmq.cli.admin.topics import read_json_list
from rmq.cli.consume import BROWSE_GROUP
from rmq.client.admin import AdminClient
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode
from rmq.protocol.topics import (
    SYSTEM_GROUP_PREFIX,
    SYSTEM_GROUPS,
    dlq_topic,
    retry_topic,
)


@register_command("updateSubGroup")
@broker_or_cluster
@group_option
@bool_option("-s", "--consumeEnable", "consume", default=True)
@bool_option("-m", "--consumeFromMinEnable", "from_min", default=False)
@bool_option("-d", "--consumeBroadcastEnable", "broadcast", default=False)
@bool_option("-o", "--consumeMessageOrderly", "orderly", default=False)
@click.option("-q", "--retryQueueNums", "retry_queues", type=int, default=1)
@click.option("-r", "--retryMaxTimes", "retries", type=int, default=16)
@click.option("-i", "--brokerId", "broker_id", type=int, default=0)
@click.option("-w", "--whichBrokerWhenConsumeSlowly", "slow", type=int, default=1)
@bool_option("-a", "--notifyConsumerIdsChanged", "notify", default=True)
@click.option("-p", "--groupRetryPolicy", "policy", help="A JSON object.")
@click.option("--attributes", "attributes", help="+a=b,+c=d,-e")
def update_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    **options: Any,  # noqa: ANN401 - one for each option
) -> Output:
    config = {
        "groupName": group,
        "consumeEnable": options["consume"],
        "consumeFromMinEnable": options["from_min"],
        "consumeBroadcastEnable": options["broadcast"],
        "consumeMessageOrderly": options["orderly"],
        "retryQueueNums": options["retry_queues"],
        "retryMaxTimes": options["retries"],
        "brokerId": options["broker_id"],
        "whichBrokerWhenConsumeSlowly": options["slow"],
        "notifyConsumerIdsChangedEnable": options["notify"],
    }
    if options["policy"]:
        config["groupRetryPolicy"] = fastjson.load_json(options["policy"])
    if options["attributes"]:
        parts = (each.partition("=") for each in options["attributes"].split(","))
        config["attributes"] = {name.strip(): value for name, _, value in parts}
    return send_to_brokers(
        admin,
        resolve_brokers(admin, broker, cluster),
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        body=fastjson.dump_json(config),
        text="create subscription group to {} success.",
    )


@register_command("updateSubGroupList")
@broker_or_cluster
@click.option(
    "-f", "--filename", required=True, type=click.Path(exists=True, dir_okay=False)
)
def update_sub_group_list(
    admin: AdminClient, broker: str | None, cluster: str | None, filename: str
) -> Output:
    configs = read_json_list(filename)
    body = fastjson.dump_json({"groupConfigList": configs})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    brokers = resolve_brokers(admin, broker, cluster)
    text = f"{len(configs)} groups to {{}} success."
    return send_to_brokers(admin, brokers, code, body=body, text=text)


@register_command("deleteSubGroup")
@broker_or_cluster
@group_option
@bool_option("-r", "--removeOffset", "remove", default=False)
def delete_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    *,
    remove: bool,
) -> Output:
    fields = {"groupName": group, "cleanOffset": remove}
    if not broker:
        cluster = cluster or admin.only_cluster()
    asked = resolve_brokers(admin, broker, cluster)
    for each in asked:
        admin.request(each.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    if cluster:
        for topic in (retry_topic(group), dlq_topic(group)):
            where = {"topic": topic}
            for each in asked:
                admin.request(each.address, RequestCode.DELETE_TOPIC_IN_BROKER, where)
            for address in admin.name_servers:
                code = RequestCode.DELETE_TOPIC_IN_NAMESRV
                admin.request(address, code, {**where, "clusterName": cluster})
    return [
        f"delete subscription group [{group}] from broker [{each.address}] success."
        for each in asked
    ]


@register_command("getConsumerConfig")
@group_option
def get_consumer_config(admin: AdminClient, group: str) -> Output:
    return fetch_group_configs(admin, group)


def fetch_group_configs(admin: AdminClient, group: str) -> dict[str, Any]:
    """Return the configurations of a group by `cluster:broker`."""
    found = {}
    for each in admin.masters():
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = admin.request_json(each.address, code)["subscriptionGroupTable"]
        if group in table:
            found[f"{each.cluster}:{each.name}"] = table[group]
    return found


def group_names(admin: AdminClient, cluster: str | None = None) -> list[str]:
    """Return the groups of users: groups with settings, or with a retry topic."""
    names = set(admin.groups())
    for each in admin.masters(cluster):
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        names |= admin.request_json(each.address, code)["subscriptionGroupTable"].keys()
    return sorted(
        each
        for each in names
        if each not in (*SYSTEM_GROUPS, BROWSE_GROUP)
        and not each.startswith(SYSTEM_GROUP_PREFIX)
    )


@register_command("setConsumeMode")
@broker_or_cluster
@topic_option
@click.option("-g", "--groupName", "group", required=True)
@click.option("-m", "--mode", type=click.Choice(["PULL", "POP"]), required=True)
@click.option("-q", "--popShareQueueNum", "share", type=int, default=0)
def set_consume_mode(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    topic: str,
    group: str,
    mode: str,
    share: int,
) -> Output:
    body = fastjson.dump_json(
        {
            "topic": topic,
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": share,
        }
    )
    brokers = resolve_brokers(admin, broker, cluster)
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    text = "set consume mode to {} success."
    return send_to_brokers(admin, brokers, code, body=body, text=text)
