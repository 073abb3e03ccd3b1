"""Commands for lite topics: small queues of a parent topic."""

from collections.abc import Iterator
from typing import Any

import click

from rmq.cli import completion
from rmq.cli.admin.base import (
    Output,
    Table,
    broker_or_cluster,
    register_command,
    resolve_brokers,
    sort_rows,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode

parent_option = click.option(
    "-p", "--parentTopic", "topic", required=True, shell_complete=completion.topics
)
group_option = click.option(
    "-g", "--group", "group", required=True, shell_complete=completion.groups
)


def _ask_each_broker(
    admin: AdminClient, topic: str, code: int, fields: dict[str, object]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the answer of each broker of a parent topic, with the broker's name."""
    for broker in admin.topic_brokers(topic):
        yield broker.name, admin.request_json(broker.address, code, fields)


@register_command("getBrokerLiteInfo")
@broker_or_cluster
@click.option("-d", "--showDetail", "detail", is_flag=True)
def broker_info(
    admin: AdminClient, broker: str | None, cluster: str | None, *, detail: bool
) -> Output:
    columns = (
        "broker", "storeType", "maxLmqNum", "currentLmqNum", "liteSubscriptionCount",
        "orderInfoCount", "cqTableSize", "offsetTableSize", "eventMapSize",
        *(("topicMeta", "groupMeta") if detail else ()),
    )  # fmt: skip
    rows = []
    for each in resolve_brokers(admin, broker, cluster):
        answer = admin.request_json(each.address, RequestCode.GET_BROKER_LITE_INFO)
        rows.append((each.address, *map(answer.get, columns[1:])))
    return Table(columns, rows)


@register_command("getParentTopicInfo")
@parent_option
def parent_info(admin: AdminClient, topic: str) -> Output:
    columns = "ttl", "liteTopicCount", "lmqNum", "groups"
    code = RequestCode.GET_PARENT_TOPIC_INFO
    rows = [
        (name, *map(answer.get, columns))
        for name, answer in _ask_each_broker(admin, topic, code, {"topic": topic})
    ]
    return Table(("brokerName", *columns), rows)


@register_command("getLiteTopicInfo")
@parent_option
@click.option("-l", "--liteTopic", "lite", required=True)
@click.option("-s", "--showClientId", "show_clients", is_flag=True)
def topic_info(
    admin: AdminClient, topic: str, lite: str, *, show_clients: bool
) -> Output:
    columns = (
        "brokerName", "minOffset", "maxOffset", "lastUpdateTimestamp",
        "shardingToBroker", "subscriberCount",
        *(("subscriber",) if show_clients else ()),
    )  # fmt: skip
    code = RequestCode.GET_LITE_TOPIC_INFO
    rows = []
    fields: dict[str, object] = {"parentTopic": topic, "liteTopic": lite}
    for name, answer in _ask_each_broker(admin, topic, code, fields):
        offsets, subscribers = answer["topicOffset"], answer.get("subscriber") or []
        names = [f"{each['clientId']}@{each['group']}" for each in subscribers]
        row = (name, *map(offsets.get, columns[1:4]), answer["shardingToBroker"])
        rows.append((*row, len(names), *((sorted(names),) if show_clients else ())))
    return Table(columns, rows)


@register_command("getLiteClientInfo")
@parent_option
@group_option
@click.option("-c", "--clientId", "client_id", required=True)
@click.option("-s", "--showDetail", "detail", is_flag=True)
def client_info(
    admin: AdminClient, topic: str, group: str, client_id: str, *, detail: bool
) -> Output:
    columns = (
        "liteTopicCount", "lastAccessTime", "lastConsumeTime",
        *(("liteTopicSet",) if detail else ()),
    )  # fmt: skip
    fields: dict[str, object] = {"parentTopic": topic, "group": group}
    fields["clientId"] = client_id
    code = RequestCode.GET_LITE_CLIENT_INFO
    rows = [
        (name, *map(answer.get, columns))
        for name, answer in _ask_each_broker(admin, topic, code, fields)
    ]
    return Table(("brokerName", *columns), rows)


@register_command("getLiteGroupInfo")
@parent_option
@group_option
@click.option("-l", "--liteTopic", "lite", help="Only this lite topic.")
@click.option("-k", "--topK", "most", type=click.IntRange(1), default=20)
def group_info(
    admin: AdminClient, topic: str, group: str, lite: str | None, most: int
) -> Output:
    code = RequestCode.GET_LITE_GROUP_INFO
    fields: dict[str, object] = {"group": group, "topK": most}
    if lite:
        fields["liteTopic"] = lite
    answers = list(_ask_each_broker(admin, topic, code, fields))
    total = sum(max(0, answer["totalLagCount"]) for _, answer in answers)
    if lite:
        columns = "brokerOffset", "consumerOffset", "lastTimestamp"
        wrappers = [(n, a.get("liteTopicOffsetWrapper") or {}) for n, a in answers]
        rows = [(name, *map(each.get, columns)) for name, each in wrappers]
        return Table(("brokerName", *columns), rows, f"Total Lag Count: {total}")
    columns = "liteTopic", "lagCount", "earliestUnconsumedTimestamp"
    found = [
        (name, *map(each.get, columns))
        for name, answer in answers
        for each in answer.get("lagCountTopK") or []
    ]
    found.sort(key=lambda row: -int(str(row[2])))
    return Table(("brokerName", *columns), found, f"Total Lag Count: {total}")


@register_command("triggerLiteDispatch")
@parent_option
@group_option
@click.option("-c", "--clientId", "client_id", help="Only this client of the group.")
@click.option("-b", "--brokerName", "broker", help="Only this broker.")
def trigger(
    admin: AdminClient,
    topic: str,
    group: str,
    client_id: str | None,
    broker: str | None,
) -> Output:
    fields = {"group": group} | ({"clientId": client_id} if client_id else {})
    rows = []
    for each in admin.topic_brokers(topic):
        if broker in (None, each.name):
            admin.request(each.address, RequestCode.TRIGGER_LITE_DISPATCH, fields)
            rows.append((each.name, "dispatched"))
    if not rows:
        raise click.UsageError(f"no broker {broker} has the topic {topic}")
    return Table(("brokerName", "result"), sort_rows(rows))
