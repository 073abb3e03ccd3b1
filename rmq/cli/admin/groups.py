"""Commands about consumer groups and clients."""

import time
from typing import Any, Final

import click

from rmq.cli import completion
from rmq.cli.admin.base import (
    Shown,
    Table,
    admin_command,
    broker_option,
    broker_or_cluster,
    cluster_option,
    emit,
    flag,
    group_option,
    pick,
    targets,
    topic_option,
)
from rmq.cli.admin.topics import _read_list, groups_of, traffic
from rmq.client.admin import AdminClient, GroupUnknown
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import RETRY_PREFIX, dlq_topic, retry_topic
from rmq.protocol.versions import version_text

OF_MQADMIN: Final = 6
"""Columns that mqadmin's consumerProgress has without a group."""

LANGUAGES: Final = {
    "JAVA": "Java", "CPP": "C++", "PYTHON": "Python", "GO": "Go", "DOTNET": ".NET",
    "HTTP": "HTTP", "RUST": "Rust", "NODE_JS": "Node", "OTHER": "other",
}  # fmt: skip


@admin_command("updateSubGroup")
@broker_or_cluster
@group_option
@flag("-s", "--consumeEnable", "consume", default=True)
@flag("-m", "--consumeFromMinEnable", "from_min", default=False)
@flag("-d", "--consumeBroadcastEnable", "broadcast", default=False)
@flag("-o", "--consumeMessageOrderly", "orderly", default=False)
@click.option("-q", "--retryQueueNums", "retry_queues", type=int, default=1)
@click.option("-r", "--retryMaxTimes", "retries", type=int, default=16)
@click.option("-i", "--brokerId", "broker_id", type=int, default=0)
@click.option("-w", "--whichBrokerWhenConsumeSlowly", "slow", type=int, default=1)
@flag("-a", "--notifyConsumerIdsChanged", "notify", default=True)
@click.option("-p", "--groupRetryPolicy", "policy", help="A JSON object.")
@click.option("--attributes", "attributes", help="+a=b,+c=d,-e")
def update_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    **options: Any,  # noqa: ANN401 - one for each option
) -> Shown:
    """Create a consumer group or change it."""
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
        config["groupRetryPolicy"] = fastjson.loads(options["policy"])
    if options["attributes"]:
        parts = (each.partition("=") for each in options["attributes"].split(","))
        config["attributes"] = {name.strip(): value for name, _, value in parts}
    asked = targets(admin, broker, cluster)
    body = fastjson.dumps(config)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    for each in asked:
        admin.ask(each.address, code, body=body)
    return [f"create subscription group to {each.address} success." for each in asked]


@admin_command("updateSubGroupList")
@broker_or_cluster
@click.option(
    "-f", "--filename", required=True, type=click.Path(exists=True, dir_okay=False)
)
def update_sub_group_list(
    admin: AdminClient, broker: str | None, cluster: str | None, filename: str
) -> Shown:
    """Create or change the groups of a JSON file, a list of configurations."""
    configs = _read_list(filename)
    body = fastjson.dumps({"groupConfigList": configs})
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, code, body=body)
    return [f"{len(configs)} groups to {each.address} success." for each in asked]


@admin_command("deleteSubGroup")
@broker_or_cluster
@group_option
@flag("-r", "--removeOffset", "remove", default=False)
def delete_sub_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    *,
    remove: bool,
) -> Shown:
    """Delete a group; with -c its retry and dead-letter topics too."""
    fields = {"groupName": group, "cleanOffset": remove}
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
    if cluster:
        for topic in (retry_topic(group), dlq_topic(group)):
            where = {"topic": topic}
            for each in asked:
                admin.ask(each.address, RequestCode.DELETE_TOPIC_IN_BROKER, where)
            for address in admin.name_servers:
                code = RequestCode.DELETE_TOPIC_IN_NAMESRV
                admin.ask(address, code, {**where, "clusterName": cluster})
    return [
        f"delete subscription group [{group}] from broker [{each.address}] success."
        for each in asked
    ]


@admin_command("getConsumerConfig")
@group_option
def get_consumer_config(admin: AdminClient, group: str) -> Shown:
    """Show the configuration of a group on each broker."""
    return _configs(admin, group)


def _configs(admin: AdminClient, group: str) -> dict[str, Any]:
    """Return the configuration of a group by the brokers that have it."""
    found = {}
    for each in admin.masters():
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        table = admin.value(each.address, code)["subscriptionGroupTable"]
        if group in table:
            found[f"{each.cluster}:{each.name}"] = table[group]
    return found


@admin_command("consumerConnection")
@group_option
@broker_option
def consumer_connection(admin: AdminClient, group: str, broker: str | None) -> Shown:
    """Show the members of a consumer group and their subscriptions."""
    if broker:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        found = admin.value(broker, code, {"consumerGroup": group})
    else:
        found = admin.consumers(group)
    assert isinstance(found, dict), group
    return found


@admin_command("producerConnection")
@group_option
@topic_option
def producer_connection(admin: AdminClient, group: str, topic: str) -> Shown:
    """Show the members of a producer group, on the brokers of a topic."""
    rows: list[tuple[object, ...]] = []
    refusal: AnswerRefused | None = None
    for host in admin.hosts(topic):
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        try:
            found = admin.value(host.address, code, {"producerGroup": group})
        except AnswerRefused as error:
            refusal = error
            continue
        rows += [_member(each) for each in found["connectionSet"]]
    if not rows and refusal is not None:
        raise refusal
    return Table(("clientId", "clientAddr", "language", "version"), rows)


def _member(each: dict[str, Any]) -> tuple[object, ...]:
    return each["clientId"], each["clientAddr"], each["language"], each["version"]


@admin_command("producer")
@broker_option
def producer(admin: AdminClient, broker: str | None) -> Shown:
    """Show every producer of a broker by group."""
    (host,) = targets(admin, broker, None)
    data = (
        admin.value(host.address, RequestCode.GET_ALL_PRODUCER_INFO).get("data") or {}
    )
    columns = (
        "group", "clientId", "remoteIP", "language", "version", "lastUpdateTimestamp",
    )  # fmt: skip
    rows = [
        (group, *(each.get(name) for name in columns[1:]))
        for group, members in data.items()
        for each in members
    ]
    return Table(columns, pick(rows))


@admin_command("consumerProgress")
@click.option("-g", "--groupName", "group", shell_complete=completion.groups)
@click.option("-t", "--topicName", "topic")
@flag("-s", "--showClientIP", "show_clients", default=False)
@cluster_option
def consumer_progress(
    admin: AdminClient,
    group: str | None,
    topic: str | None,
    cluster: str | None,
    *,
    show_clients: bool,
) -> Shown:
    """Show how far groups are behind; with -g queue by queue."""
    if not group:
        return _all_progress(admin, cluster)
    clients = _clients_by_queue(admin, group) if show_clients else {}
    rows: list[tuple[object, ...]] = []
    for queue, each in progress(admin, group, topic, cluster):
        name = queue["topic"], queue["brokerName"], queue["queueId"]
        consumed, ended = each["consumerOffset"], each["brokerOffset"]
        row = (*name, ended, consumed, clients.get(name, ""))
        inflight = each.get("pullOffset", consumed) - consumed
        rows.append((*row, ended - consumed, inflight, each["lastTimestamp"]))
    if not rows and not _configs(admin, group):
        raise GroupUnknown(group)
    columns = (
        "topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "clientIP",
        "diff", "inflight", "lastTime",
    )  # fmt: skip
    behind = sum(int(str(row[6])) for row in rows)
    return Table(columns, pick(rows), f"Diff Total: {behind}")


def progress(
    admin: AdminClient,
    group: str,
    topic: str | None = None,
    cluster: str | None = None,
) -> list[tuple[Any, dict[str, Any]]]:
    """Return the queues of a group with its offsets, over all brokers."""
    return [
        item
        for stats in _consume_stats(admin, group, topic, cluster)
        for item in stats["offsetTable"].items()
    ]


def _consume_stats(
    admin: AdminClient, group: str, topic: str | None, cluster: str | None
) -> list[dict[str, Any]]:
    """Return what each broker knows of a group's offsets and rate."""
    fields = {"consumerGroup": group} | ({"topic": topic} if topic else {})
    code = RequestCode.GET_CONSUME_STATS
    return [admin.value(each.address, code, fields) for each in admin.masters(cluster)]


def _clients_by_queue(
    admin: AdminClient, group: str
) -> dict[tuple[str, str, int], str]:
    """Return the client of each queue, as reported by the clients."""
    found = {}
    for client, info in running_infos(admin, group).items():
        for queue in info.get("mqTable") or {}:
            name = queue["topic"], queue["brokerName"], queue["queueId"]
            found[name] = client.partition("@")[0]
    return found


def running_infos(
    admin: AdminClient, group: str, *, client: str | None = None, jstack: bool = False
) -> dict[str, dict[str, Any]]:
    """Ask the members of a group, or one of them, for their state."""
    found: dict[str, dict[str, Any]] = {}
    for member in admin.consumers(group)["connectionSet"]:
        name = member["clientId"]
        if client not in (None, name):
            continue
        for broker in admin.masters():
            fields = {"consumerGroup": group, "clientId": name, "jstackEnable": jstack}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = admin.answer(broker.address, code, fields)
            if answer.code == ResponseCode.SUCCESS:
                found[name] = fastjson.loads(answer.body)
                break
    return found


def _all_progress(admin: AdminClient, cluster: str | None) -> Table:
    rows: list[tuple[object, ...]] = []
    for topic in admin.topics():
        if not topic.startswith(RETRY_PREFIX):
            continue
        group = topic.removeprefix(RETRY_PREFIX)
        rows.append(_one_progress(admin, group, cluster))
    columns = (
        "group", "count", "version", "type", "model", "diffTotal", "waitsMs", "outTPS",
        "library",
    )  # fmt: skip
    rows.sort(key=lambda row: -int(str(row[OF_MQADMIN - 1])))
    return Table(columns, rows, of_mqadmin=OF_MQADMIN)


def _one_progress(
    admin: AdminClient, group: str, cluster: str | None
) -> tuple[object, ...]:
    stats = _consume_stats(admin, group, None, cluster)
    queues = [each for found in stats for each in found["offsetTable"].values()]
    behind = sum(each["brokerOffset"] - each["consumerOffset"] for each in queues)
    rate = sum(found.get("consumeTps") or 0.0 for found in stats)
    more = _waits_ms(queues, int(time.time() * 1_000)), rate
    try:
        online = admin.consumers(group)
    except AnswerRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return group, 0, "OFFLINE", None, None, behind, *more, None
    members = online["connectionSet"]
    version = min((each["version"] for each in members), default=0)
    kind, model = online.get("consumeType"), online.get("messageModel")
    return group, len(members), version, kind, model, behind, *more, _library(members)


def _waits_ms(queues: list[dict[str, Any]], now_ms: int) -> int | None:
    """Return how old the last message is that was consumed where others wait."""
    times = [
        each["lastTimestamp"]
        for each in queues
        if each["brokerOffset"] > each["consumerOffset"] and each["lastTimestamp"] > 0
    ]
    return max(0, now_ms - min(times)) if times else None


def _library(members: list[dict[str, Any]]) -> str:
    """Return the languages and versions of clients: `Java 5.3.1, 5.5.0; Go 4.9.3`."""
    versions: dict[str, set[str]] = {}
    for each in members:
        name = LANGUAGES.get(each["language"], each["language"])
        version = version_text(each["version"])
        versions.setdefault(name, set()).add(version)
    return "; ".join(
        f"{name} {', '.join(sorted(versions[name]))}".rstrip()
        for name in sorted(versions)
    )


@admin_command("consumerStatus")
@click.option("-g", "--consumerGroup", "group", required=True)
@click.option("-i", "--clientId", "client")
@broker_option
@click.option("-s", "--jstack", "jstack", is_flag=True, help="With stacks of threads.")
def consumer_status(
    admin: AdminClient,
    group: str,
    client: str | None,
    broker: str | None,
    *,
    jstack: bool,
) -> Shown:
    """Show the state that the members of a group report."""
    if broker and client:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": group, "clientId": client, "jstackEnable": jstack}
        return {client: admin.value(broker, code, fields)}
    infos = running_infos(admin, group, client=client, jstack=jstack)
    return dict(infos)


@admin_command("startMonitoring")
@click.option("-i", "--interval", type=click.FloatRange(0), default=60.0)
@click.option("-a", "--amount", type=click.IntRange(0), default=0, help="0: for ever.")
def start_monitoring(admin: AdminClient, interval: float, amount: int) -> Shown:
    """Print repeatedly how far groups are behind."""
    rounds = 0
    while True:
        rounds += 1
        table = _all_progress(admin, None)
        if amount and rounds >= amount:
            return table
        emit(table, as_json=False)
        time.sleep(interval)


@admin_command("statsAll")
@flag("-a", "--activeTopic", "active", default=False)
@click.option("-t", "--topic", "wanted")
def stats_all(admin: AdminClient, wanted: str | None, *, active: bool) -> Shown:
    """Show the traffic of topics and groups: last minute, and last 24 hours."""
    rows: list[tuple[object, ...]] = []
    for topic in admin.topics():
        if topic.startswith(RETRY_PREFIX) or wanted not in (None, topic):
            continue
        hosts = [host.address for host in admin.hosts(topic)]
        put = [traffic(admin, each, "TOPIC_PUT_NUMS", topic) for each in hosts]
        if active and not sum(total for _, total in put):
            continue
        into = sum(rate for rate, _ in put), sum(total for _, total in put)
        for group in groups_of(admin, topic) or [""]:
            key = f"{topic}@{group}"
            got = [traffic(admin, each, "GROUP_GET_NUMS", key) for each in hosts]
            queues = progress(admin, group, topic) if group else []
            behind = sum(e["brokerOffset"] - e["consumerOffset"] for _, e in queues)
            rows.append(
                (
                    topic, group or "NO_CONSUMER", behind, into[0],
                    sum(rate for rate, _ in got), into[1],
                    sum(total for _, total in got),
                )
            )  # fmt: skip
    columns = (
        "topic", "consumerGroup", "accumulation", "inTPS", "outTPS", "inMsg24Hour",
        "outMsg24Hour",
    )  # fmt: skip
    return Table(columns, rows)
