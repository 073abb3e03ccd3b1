"""Commands for topics."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    broker_or_cluster,
    cluster_option,
    one_cluster_option,
    register_command,
    resolve_brokers,
    send_to_brokers,
    sort_rows,
    topic_option,
)
from rmq.client.admin import AdminClient
from rmq.client.core.allocate import allocate_average
from rmq.core.errors import PeerError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.flags import TOPIC_UNIT, TOPIC_UNIT_SUB, is_readable, is_writable
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX

MAX_TOPICS_WITH_RATES: Final = 1_000


"""Maximum number of topics with rates and groups in topicList: each topic costs several
requests.
"""


ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@register_command("updateTopic")
@broker_or_cluster
@topic_option
@click.option("-r", "--readQueueNums", "reads", type=int, default=8, show_default=True)
@click.option(
    "-w", "--writeQueueNums", "writes", type=int, default=8, show_default=True
)
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), default="6")
@bool_option("-o", "--order", default=False)
@bool_option("-u", "--unit", default=False)
@bool_option("-s", "--hasUnitSub", "unit_sub", default=False)
@click.option("-a", "--attributes", help="+name=value,-name")
def update_topic(  # noqa: PLR0913 - one parameter for each option
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    topic: str,
    reads: int,
    writes: int,
    perm: str,
    attributes: str | None,
    *,
    order: bool,
    unit: bool,
    unit_sub: bool,
) -> Output:
    fields: dict[str, object] = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": reads,
        "writeQueueNums": writes,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": TOPIC_UNIT * unit + TOPIC_UNIT_SUB * unit_sub,
        "order": order,
    }
    if attributes:
        fields["attributes"] = attributes
    brokers = resolve_brokers(admin, broker, cluster)
    code, text = RequestCode.UPDATE_AND_CREATE_TOPIC, "create topic to {} success."
    lines = send_to_brokers(admin, brokers, code, fields, text=text)
    if order and not broker:
        conf = ";".join(f"{each.name}:{writes}" for each in brokers)
        _put_order(admin, topic, conf)
    return lines


@register_command("updateTopicList")
@broker_or_cluster
@click.option(
    "-f", "--filename", required=True, type=click.Path(exists=True, dir_okay=False)
)
def update_topic_list(
    admin: AdminClient, broker: str | None, cluster: str | None, filename: str
) -> Output:
    configs = read_json_list(filename)
    body = fastjson.dump_json({"topicConfigList": configs})
    brokers = resolve_brokers(admin, broker, cluster)
    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    text = f"{len(configs)} topics to {{}} success."
    return send_to_brokers(admin, brokers, code, body=body, text=text)


def read_json_list(filename: str) -> list[object]:
    """Read a file with a JSON list; BadParameter if it is no such list."""
    try:
        value = json.loads(Path(filename).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{filename}: {error}", param_hint="-f") from error
    if not isinstance(value, list):
        raise click.BadParameter(
            f"{filename} does not contain a JSON list", param_hint="-f"
        )
    return value


@register_command("deleteTopic")
@one_cluster_option
@topic_option
def delete_topic(admin: AdminClient, cluster: str | None, topic: str) -> Output:
    cluster = cluster or admin.only_cluster()
    for each in resolve_brokers(admin, None, cluster, slaves=True):
        admin.request(
            each.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
        )
    for address in admin.name_servers:
        fields = {"topic": topic, "clusterName": cluster}
        admin.request(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
    return [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]


@register_command("updateTopicPerm")
@broker_or_cluster
@topic_option
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), required=True)
def update_topic_perm(
    admin: AdminClient, broker: str | None, cluster: str | None, topic: str, perm: str
) -> Output:
    lines = []
    for each in resolve_brokers(admin, broker, cluster):
        where = {"topic": topic}
        config = admin.request_json(each.address, RequestCode.GET_TOPIC_CONFIG, where)
        code, fields = RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields(topic, config)
        admin.request(each.address, code, fields | {"perm": perm})
        lines.append(
            f"update topic perm from {config['perm']} to {perm} in {each.address} "
            "success."
        )
    return lines


@register_command("topicRoute")
@topic_option
@click.option("-l", "--list", "as_list", is_flag=True, help="One line for each broker.")
def topic_route(admin: AdminClient, topic: str, *, as_list: bool) -> Output:
    route = admin.route(topic)
    if not as_list:
        assert isinstance(route, dict), topic
        return route
    brokers = {each["brokerName"]: each for each in route["brokerDatas"]}
    return Table(
        (
            "cluster",
            "brokerName",
            "brokerAddrs",
            "readQueueNums",
            "writeQueueNums",
            "perm",
        ),
        [
            (
                brokers[name].get("cluster"),
                name,
                brokers[name].get("brokerAddrs"),
                data["readQueueNums"],
                data["writeQueueNums"],
                data["perm"],
            )
            for data in route["queueDatas"]
            if (name := data["brokerName"]) in brokers
        ],
    )


@register_command("topicStatus")
@topic_option
@cluster_option
def topic_status(admin: AdminClient, topic: str, cluster: str | None) -> Output:
    rows: list[tuple[object, ...]] = []
    for host in admin.topic_brokers(topic):
        if cluster not in (None, host.cluster):
            continue
        where = {"topic": topic}
        stats = admin.request_json(
            host.address, RequestCode.GET_TOPIC_STATS_INFO, where
        )
        rows += [
            (
                queue["brokerName"],
                queue["queueId"],
                each["minOffset"],
                each["maxOffset"],
                each["lastUpdateTimestamp"],
            )
            for queue, each in stats["offsetTable"].items()
        ]
    rows.sort(key=lambda row: (str(row[0]), int(str(row[1]))))
    columns = ("brokerName", "queueId", "minOffset", "maxOffset", "lastUpdateTimestamp")
    return Table(columns, rows)


@register_command("topicClusterList")
@topic_option
def topic_cluster_list(admin: AdminClient, topic: str) -> Output:
    return Table(("cluster",), [(name,) for name in sorted(clusters_of(admin, topic))])


def clusters_of(admin: AdminClient, topic: str) -> set[str]:
    """Return the clusters whose brokers have a topic."""
    return {host.cluster for host in admin.topic_brokers(topic)}


@register_command("topicList")
@click.option("-c", "--clusterModel", "with_groups", is_flag=True)
def topic_list(admin: AdminClient, *, with_groups: bool) -> Output:
    topics = admin.topics()
    if not with_groups:
        return topic_overview(admin, topics)
    rows: list[tuple[object, ...]] = []
    for topic in topics:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        groups = groups_of(admin, topic) or [""]
        rows += [
            (cluster, topic, group)
            for cluster in clusters_of(admin, topic)
            for group in groups
        ]
    return Table(("cluster", "topic", "consumerGroup"), sort_rows(rows))


def topic_overview(admin: AdminClient, topics: list[str]) -> Table:
    """Return a row for each topic; rates and groups up to `MAX_TOPICS_WITH_RATES`."""
    queues: Counter[str] = Counter()
    configs: dict[str, dict[str, Any]] = {}
    silent = []
    for each in admin.masters():
        try:
            found = admin.request_json(each.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        except (AnswerRefused, PeerError) as error:
            silent.append(str(error))
            continue
        for topic, config in found["topicConfigTable"].items():
            queues[topic] += config["writeQueueNums"]
            configs.setdefault(topic, config)
    is_short = len(topics) <= MAX_TOPICS_WITH_RATES
    rows: list[tuple[object, ...]] = []
    for topic in topics:
        config = configs.get(topic)
        if config is None:
            rows.append((topic, None, None, None, None, None))
            continue
        kind, perm = kind_of(config), perm_text(config)
        rate = groups = None
        if is_short and not silent:
            hosts = [host.address for host in admin.topic_brokers(topic)]
            rate, _ = fetch_traffic(admin, hosts, "TOPIC_PUT_NUMS", topic)
            groups = len(groups_of(admin, topic))
        rows.append((topic, queues[topic], perm, rate, kind, groups))
    note = "; ".join(silent)
    if not is_short:
        note = f"more than {MAX_TOPICS_WITH_RATES:,} topics: rates and groups omitted"
    columns = "topic", "queues", "perm", "inTPS", "kind", "groups"
    return Table(columns, rows, note, of_mqadmin=1)


def kind_of(config: Mapping[str, Any]) -> str:
    """Return the kind of messages that a topic accepts."""
    kind = (config.get("attributes") or {}).get("message.type", "normal")
    return str(kind).lower()


def perm_text(config: Mapping[str, Any]) -> str:
    """Return the permissions of clients for a topic: r, w or rw."""
    perm = config.get("perm", 0)
    return "r" * is_readable(perm) + "w" * is_writable(perm)


def topic_fields(topic: str, config: Mapping[str, Any]) -> dict[str, object]:
    """Return the fields of request 17 with these settings, without attributes."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": config["readQueueNums"],
        "writeQueueNums": config["writeQueueNums"],
        "perm": config["perm"],
        "topicFilterType": config.get("topicFilterType", "SINGLE_TAG"),
        "topicSysFlag": config.get("topicSysFlag", 0),
        "order": config.get("order", False),
    }


def fetch_traffic(
    admin: AdminClient, addresses: Iterable[str], name: str, key: str
) -> tuple[float, int]:
    """Return the rate of the last minute and the sum of the last day, over brokers."""
    rate, total = 0.0, 0
    code, fields = (
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": name, "statsKey": key},
    )
    for address in addresses:
        with suppress(AnswerRefused):  # a broker without such messages
            data = admin.request_json(address, code, fields)
            rate += data["statsMinute"]["tps"]
            windows = ("statsDay", "statsHour", "statsMinute")
            total += max(data[window]["sum"] for window in windows)
    return rate, total


def groups_of(admin: AdminClient, topic: str) -> list[str]:
    """Return the groups that consume a topic on any broker."""
    groups: set[str] = set()
    for host in admin.topic_brokers(topic):
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        found = admin.request_json(host.address, code, {"topic": topic})
        groups.update(found.get("groupList") or ())
    return sorted(groups)


@register_command("allocateMQ")
@topic_option
@click.option(
    "-i", "--ipList", "ips", required=True, metavar="IP,…", help="Consumer addresses."
)
def allocate_mq(admin: AdminClient, topic: str, ips: str) -> Output:
    members = [part for part in ips.split(",") if part]
    queues = list(admin.queues(topic))
    rows = [
        (member, queue.broker, queue.queue_id)
        for member in dict.fromkeys(members)
        for queue in allocate_average(member, members, queues)
    ]
    return Table(("ip", "brokerName", "queueId"), rows)


@register_command("updateOrderConf")
@topic_option
@click.option(
    "-v", "--orderConf", "conf", metavar="BROKER:N;…", help="Queues by broker."
)
@click.option(
    "-m", "--method", type=click.Choice(["put", "get", "delete"]), required=True
)
def update_order_conf(
    admin: AdminClient, topic: str, conf: str | None, method: str
) -> Output:
    fields = {"namespace": ORDER_NAMESPACE, "key": topic}
    if method == "get":
        answer = admin.request_name_server(RequestCode.GET_KV_CONFIG, fields)
        return {"topic": topic, "orderConf": answer.ext_fields.get("value", "")}
    if method == "delete":
        for address in admin.name_servers:
            admin.request(address, RequestCode.DELETE_KV_CONFIG, fields)
        return [f"delete orderConf success. topic=[{topic}]"]
    if not conf:
        raise click.UsageError("-m put needs -v broker:queues;…")
    _put_order(admin, topic, conf)
    return [f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"]


def _put_order(admin: AdminClient, topic: str, conf: str) -> None:
    """Merge an order configuration into the stored one, broker by broker."""
    fields = {"namespace": ORDER_NAMESPACE, "key": topic}
    try:
        answer = admin.request_name_server(RequestCode.GET_KV_CONFIG, fields)
        old = answer.ext_fields.get("value", "")
    except AnswerRefused as error:
        if error.code != ResponseCode.QUERY_NOT_FOUND:
            raise
        old = ""
    parts = {
        part.partition(":")[0]: part for part in f"{old};{conf}".split(";") if part
    }
    value = ";".join(parts[name] for name in sorted(parts))
    for address in admin.name_servers:
        admin.request(address, RequestCode.PUT_KV_CONFIG, {**fields, "value": value})
