"""Commands about topics."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from rmq.cli.admin.base import (
    Shown,
    Table,
    admin_command,
    broker_option,
    broker_or_cluster,
    cluster_option,
    flag,
    pick,
    targets,
    topic_option,
)
from rmq.client.admin import AdminClient
from rmq.client.core.allocate import average
from rmq.core.errors import PeerError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.flags import TOPIC_UNIT, TOPIC_UNIT_SUB, is_readable, is_writable
from rmq.protocol.topics import DLQ_PREFIX, RETRY_PREFIX

MAX_ASKED: Final = 1_000
"""Topics whose rates and groups are asked for one by one."""

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"


@admin_command("updateTopic")
@broker_or_cluster
@topic_option
@click.option("-r", "--readQueueNums", "reads", type=int, default=8, show_default=True)
@click.option(
    "-w", "--writeQueueNums", "writes", type=int, default=8, show_default=True
)
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), default="6")
@flag("-o", "--order", default=False)
@flag("-u", "--unit", default=False)
@flag("-s", "--hasUnitSub", "unit_sub", default=False)
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
) -> Shown:
    """Create a topic or change it, on one broker or on all masters of a cluster."""
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
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
    if order and cluster:
        text = ";".join(f"{each.name}:{writes}" for each in asked)
        _put_order(admin, topic, text)
    return [f"create topic to {each.address} success." for each in asked]


@admin_command("updateTopicList")
@broker_or_cluster
@click.option(
    "-f", "--filename", required=True, type=click.Path(exists=True, dir_okay=False)
)
def update_topic_list(
    admin: AdminClient, broker: str | None, cluster: str | None, filename: str
) -> Shown:
    """Create or change the topics of a JSON file, a list of topic configurations."""
    configs = _read_list(filename)
    body = fastjson.dumps({"topicConfigList": configs})
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)
    return [f"{len(configs)} topics to {each.address} success." for each in asked]


def _read_list(filename: str) -> list[object]:
    try:
        value = json.loads(Path(filename).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{filename}: {error}", param_hint="-f") from error
    if not isinstance(value, list):
        raise click.BadParameter(f"{filename} holds no JSON list", param_hint="-f")
    return value


@admin_command("deleteTopic")
@cluster_option
@topic_option
def delete_topic(admin: AdminClient, cluster: str | None, topic: str) -> Shown:
    """Delete a topic on every broker of a cluster and in the name servers."""
    asked = targets(admin, None, cluster, slaves=True)
    for each in asked:
        admin.ask(each.address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    for address in admin.name_servers:
        fields = {"topic": topic, "clusterName": cluster or ""}
        admin.ask(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)
    return [
        f"delete topic [{topic}] from cluster [{cluster}] success.",
        f"delete topic [{topic}] from NameServer success.",
    ]


@admin_command("updateTopicPerm")
@broker_or_cluster
@topic_option
@click.option("-p", "--perm", type=click.Choice(["2", "4", "6"]), required=True)
def update_topic_perm(
    admin: AdminClient, broker: str | None, cluster: str | None, topic: str, perm: str
) -> Shown:
    """Change the permission of a topic: 2 write, 4 read, 6 both."""
    lines = []
    for each in targets(admin, broker, cluster):
        where = {"topic": topic}
        config = admin.value(each.address, RequestCode.GET_TOPIC_CONFIG, where)
        admin.ask(
            each.address,
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": config["readQueueNums"],
                "writeQueueNums": config["writeQueueNums"],
                "perm": perm,
                "topicFilterType": config.get("topicFilterType", "SINGLE_TAG"),
                "topicSysFlag": config.get("topicSysFlag", 0),
                "order": config.get("order", False),
            },
        )
        lines.append(
            f"update topic perm from {config['perm']} to {perm} in {each.address} "
            "success."
        )
    return lines


@admin_command("topicRoute")
@topic_option
@click.option("-l", "--list", "as_list", is_flag=True, help="One line for each broker.")
def topic_route(admin: AdminClient, topic: str, *, as_list: bool) -> Shown:
    """Show the brokers that have a topic, and the number of queues."""
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


@admin_command("topicStatus")
@topic_option
@cluster_option
def topic_status(admin: AdminClient, topic: str, cluster: str | None) -> Shown:
    """Show the offsets of a topic's queues, and the time of their last message."""
    rows: list[tuple[object, ...]] = []
    for host in admin.hosts(topic):
        if cluster not in (None, host.cluster):
            continue
        where = {"topic": topic}
        stats = admin.value(host.address, RequestCode.GET_TOPIC_STATS_INFO, where)
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


@admin_command("topicClusterList")
@topic_option
def topic_cluster_list(admin: AdminClient, topic: str) -> Shown:
    """Show the clusters that have a topic."""
    return Table(("cluster",), [(name,) for name in sorted(clusters_of(admin, topic))])


def clusters_of(admin: AdminClient, topic: str) -> set[str]:
    """Return the clusters whose brokers have a topic."""
    return {host.cluster for host in admin.hosts(topic)}


@admin_command("topicList")
@click.option("-c", "--clusterModel", "with_groups", is_flag=True)
def topic_list(admin: AdminClient, *, with_groups: bool) -> Shown:
    """Show all topics; with -c their clusters and consumer groups."""
    topics = admin.topics()
    if not with_groups:
        return _overview(admin, topics)
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
    return Table(("cluster", "topic", "consumerGroup"), pick(rows))


def _overview(admin: AdminClient, topics: list[str]) -> Table:
    """Return a row for each topic; rates and groups if there are not too many."""
    queues: Counter[str] = Counter()
    configs: dict[str, dict[str, Any]] = {}
    silent = []
    for each in admin.masters():
        try:
            found = admin.value(each.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        except (AnswerRefused, PeerError) as error:
            silent.append(str(error))
            continue
        for topic, config in found["topicConfigTable"].items():
            queues[topic] += config["writeQueueNums"]
            configs.setdefault(topic, config)
    is_short = len(topics) <= MAX_ASKED
    rows: list[tuple[object, ...]] = []
    for topic in topics:
        config = configs.get(topic)
        if config is None:
            rows.append((topic, None, None, None, None, None))
            continue
        kind = (config.get("attributes") or {}).get("message.type", "normal").lower()
        perm = "r" * is_readable(config["perm"]) + "w" * is_writable(config["perm"])
        rate = groups = None
        if is_short and not silent:
            hosts = [host.address for host in admin.hosts(topic)]
            rate = sum(traffic(admin, at, "TOPIC_PUT_NUMS", topic)[0] for at in hosts)
            groups = len(groups_of(admin, topic))
        rows.append((topic, queues[topic], perm, rate, kind, groups))
    note = "; ".join(silent)
    if not is_short:
        note = f"no rates and groups: more than {MAX_ASKED:,} topics"
    columns = "topic", "queues", "perm", "inTPS", "kind", "groups"
    return Table(columns, rows, note, of_mqadmin=1)


def traffic(admin: AdminClient, address: str, name: str, key: str) -> tuple[float, int]:
    """Return the rate of the last minute and the sum of the last day."""
    fields = {"statsName": name, "statsKey": key}
    code = RequestCode.VIEW_BROKER_STATS_DATA
    try:
        data = admin.value(address, code, fields)
    except AnswerRefused:
        return 0.0, 0
    total = max(
        data[window]["sum"] for window in ("statsDay", "statsHour", "statsMinute")
    )
    return data["statsMinute"]["tps"], total


def groups_of(admin: AdminClient, topic: str) -> list[str]:
    """Return the groups that consume a topic on any broker."""
    groups: set[str] = set()
    for host in admin.hosts(topic):
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        found = admin.value(host.address, code, {"topic": topic})
        groups.update(found.get("groupList") or ())
    return sorted(groups)


@admin_command("allocateMQ")
@topic_option
@click.option("-i", "--ipList", "ips", required=True, help="Addresses, separated by ,")
def allocate_mq(admin: AdminClient, topic: str, ips: str) -> Shown:
    """Show how consumers at these addresses would divide the queues."""
    members = [part for part in ips.split(",") if part]
    queues = list(admin.queues(topic))
    rows = [
        (member, queue.broker, queue.queue_id)
        for member in dict.fromkeys(members)
        for queue in average(member, members, queues)
    ]
    return Table(("ip", "brokerName", "queueId"), rows)


@admin_command("updateOrderConf")
@topic_option
@click.option("-v", "--orderConf", "conf", help="broker1:queues;broker2:queues")
@click.option(
    "-m", "--method", type=click.Choice(["put", "get", "delete"]), required=True
)
def update_order_conf(
    admin: AdminClient, topic: str, conf: str | None, method: str
) -> Shown:
    """Set, show or delete the queues of an ordered topic by broker."""
    fields = {"namespace": ORDER_NAMESPACE, "key": topic}
    if method == "get":
        answer = admin.ask_name_server(RequestCode.GET_KV_CONFIG, fields)
        return {"topic": topic, "orderConf": answer.ext_fields.get("value", "")}
    if method == "delete":
        for address in admin.name_servers:
            admin.ask(address, RequestCode.DELETE_KV_CONFIG, fields)
        return [f"delete orderConf success. topic=[{topic}]"]
    if not conf:
        raise click.UsageError("-m put needs -v broker:queues;…")
    _put_order(admin, topic, conf)
    return [f"update orderConf success. topic=[{topic}], orderConf=[{conf}]"]


def _put_order(admin: AdminClient, topic: str, conf: str) -> None:
    """Merge an order into the present one, broker by broker."""
    fields = {"namespace": ORDER_NAMESPACE, "key": topic}
    try:
        answer = admin.ask_name_server(RequestCode.GET_KV_CONFIG, fields)
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
        admin.ask(address, RequestCode.PUT_KV_CONFIG, {**fields, "value": value})


@admin_command("setConsumeMode")
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
) -> Shown:
    """Choose whether a group pulls a topic or pops it."""
    body = fastjson.dumps(
        {
            "topic": topic,
            "consumerGroup": group,
            "mode": mode,
            "popShareQueueNum": share,
        }
    )
    asked = targets(admin, broker, cluster)
    for each in asked:
        admin.ask(each.address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)
    return [f"set consume mode to {each.address} success." for each in asked]


@admin_command("cleanUnusedTopic")
@broker_option
@cluster_option
def clean_unused_topic(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Shown:
    """Remove the queues of topics that a broker does not know any more."""
    return clean(admin, RequestCode.CLEAN_UNUSED_TOPIC, broker, cluster)


@admin_command("cleanExpiredCQ")
@broker_option
@cluster_option
def clean_expired_cq(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Shown:
    """Remove queue files whose messages are deleted."""
    return clean(admin, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, broker, cluster)


@admin_command("deleteExpiredCommitLog")
@broker_option
@cluster_option
def delete_expired_commit_log(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Shown:
    """Let brokers delete expired log files at any hour."""
    return clean(admin, RequestCode.DELETE_EXPIRED_COMMITLOG, broker, cluster)


def clean(
    admin: AdminClient, code: int, broker: str | None, cluster: str | None
) -> Shown:
    """Ask brokers to clean up; without -b and -c all of them."""
    asked = (
        targets(admin, broker, cluster, slaves=True)
        if broker or cluster
        else admin.brokers()
    )
    for each in asked:
        admin.ask(each.address, code)
    return [f"{each.address} success" for each in asked]
