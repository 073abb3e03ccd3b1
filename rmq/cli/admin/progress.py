"""Commands that show the lag and the traffic of consumer groups."""

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from rmq.cli import completion
from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    cluster_option,
    print_output,
    register_command,
    sort_rows,
)
from rmq.cli.admin.clients import running_infos
from rmq.cli.admin.groups import fetch_group_configs
from rmq.cli.admin.topics import fetch_traffic, groups_of
from rmq.client.admin import AdminClient, GroupUnknown
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.client_versions import version_text
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import RETRY_PREFIX

OF_MQADMIN: Final = 6
"""Columns of mqadmin's consumerProgress without a group."""

LANGUAGES: Final = {
    "JAVA": "Java", "CPP": "C++", "PYTHON": "Python", "GO": "Go", "DOTNET": ".NET",
    "HTTP": "HTTP", "RUST": "Rust", "NODE_JS": "Node", "OTHER": "other",
}  # fmt: skip


@register_command("consumerProgress")
@click.option("-g", "--groupName", "group", shell_complete=completion.groups)
@click.option("-t", "--topicName", "topic")
@bool_option("-s", "--showClientIP", "show_clients", default=False)
@cluster_option
def consumer_progress(
    admin: AdminClient,
    group: str | None,
    topic: str | None,
    cluster: str | None,
    *,
    show_clients: bool,
) -> Output:
    if not group:
        return progress_table(admin, admin.groups(), cluster)
    clients = _clients_by_queue(admin, group) if show_clients else {}
    rows: list[tuple[object, ...]] = []
    for queue, each in queue_progress(admin, group, topic, cluster):
        name = queue["topic"], queue["brokerName"], queue["queueId"]
        consumed, ended = each["consumerOffset"], each["brokerOffset"]
        row = (*name, ended, consumed, clients.get(name, ""))
        inflight = each.get("pullOffset", consumed) - consumed
        rows.append((*row, ended - consumed, inflight, each["lastTimestamp"]))
    if not rows and not fetch_group_configs(admin, group):
        raise GroupUnknown(group)
    columns = (
        "topic", "brokerName", "queueId", "brokerOffset", "consumerOffset", "clientIP",
        "diff", "inflight", "lastTime",
    )  # fmt: skip
    behind = sum(int(str(row[6])) for row in rows)
    return Table(columns, sort_rows(rows), f"Diff Total: {behind}")


def queue_progress(
    admin: AdminClient, group: str, topic: str | None = None, cluster: str | None = None
) -> list[tuple[Any, dict[str, Any]]]:
    """Return the queues of a group with their offsets, from all brokers."""
    return [
        item
        for stats in _consume_stats(admin, group, topic, cluster)
        for item in stats["offsetTable"].items()
    ]


def _consume_stats(
    admin: AdminClient, group: str, topic: str | None, cluster: str | None
) -> list[dict[str, Any]]:
    """Return offsets and rate of a group from each broker."""
    fields = {"consumerGroup": group} | ({"topic": topic} if topic else {})
    code = RequestCode.GET_CONSUME_STATS
    return [
        admin.request_json(each.address, code, fields)
        for each in admin.masters(cluster)
    ]


def _clients_by_queue(
    admin: AdminClient, group: str
) -> dict[tuple[str, str, int], str]:
    """Return the client of each queue, as the clients report it."""
    found = {}
    for client, info in running_infos(admin, group).items():
        for queue in info.get("mqTable") or {}:
            name = queue["topic"], queue["brokerName"], queue["queueId"]
            found[name] = client.partition("@")[0]
    return found


def progress_table(
    admin: AdminClient, groups: Iterable[str], cluster: str | None
) -> Table:
    """Return a row for each group, the largest lag first."""
    rows = [_one_progress(admin, group, cluster) for group in groups]
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
    more = _oldest_wait_ms(queues, int(time.time() * 1_000)), rate
    try:
        online = admin.group_connections(group)
    except AnswerRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return group, 0, "OFFLINE", None, None, behind, *more, None
    members = online["connectionSet"]
    version = min((each["version"] for each in members), default=0)
    kind, model = online.get("consumeType"), online.get("messageModel")
    return (
        group,
        len(members),
        version,
        kind,
        model,
        behind,
        *more,
        library_text(members),
    )


def _oldest_wait_ms(queues: list[dict[str, Any]], now_ms: int) -> int | None:
    """Return the age of the oldest last consumed message of lagging queues; or None."""
    times = [
        each["lastTimestamp"]
        for each in queues
        if each["brokerOffset"] > each["consumerOffset"] and each["lastTimestamp"] > 0
    ]
    return max(0, now_ms - min(times)) if times else None


def library_text(members: list[dict[str, Any]]) -> str:
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


@register_command("startMonitoring")
@click.option(
    "-i",
    "--interval",
    type=click.FloatRange(0),
    default=60.0,
    show_default=True,
    help="Seconds between two outputs.",
)
@click.option(
    "-a",
    "--amount",
    type=click.IntRange(0),
    default=0,
    help="Stop after N outputs; 0: never.",
)
def start_monitoring(admin: AdminClient, interval: float, amount: int) -> Output:
    rounds = 0
    while True:
        rounds += 1
        table = progress_table(admin, admin.groups(), None)
        if amount and rounds >= amount:
            return table
        print_output(table, as_json=False)
        time.sleep(interval)


@register_command("statsAll")
@bool_option("-a", "--activeTopic", "active_only", default=False)
@click.option("-t", "--topic", "wanted")
def stats_all(admin: AdminClient, wanted: str | None, *, active_only: bool) -> Output:
    columns = (
        "topic", "consumerGroup", "accumulation", "inTPS", "outTPS", "inMsg24Hour",
        "outMsg24Hour",
    )  # fmt: skip
    topics = [
        topic
        for topic in admin.topics()
        if not topic.startswith(RETRY_PREFIX) and wanted in (None, topic)
    ]
    rows = [
        row
        for each in topics
        for row in _traffic_rows(admin, each, active_only=active_only)
    ]
    return Table(columns, rows)


def _traffic_rows(
    admin: AdminClient, topic: str, *, active_only: bool
) -> Iterator[tuple[object, ...]]:
    hosts = [host.address for host in admin.topic_brokers(topic)]
    in_rate, in_day = fetch_traffic(admin, hosts, "TOPIC_PUT_NUMS", topic)
    if active_only and not in_day:
        return
    for group in groups_of(admin, topic) or [""]:
        key = f"{topic}@{group}"
        out_rate, out_day = fetch_traffic(admin, hosts, "GROUP_GET_NUMS", key)
        queues = queue_progress(admin, group, topic) if group else []
        lag = sum(each["brokerOffset"] - each["consumerOffset"] for _, each in queues)
        yield topic, group or "NO_CONSUMER", lag, in_rate, out_rate, in_day, out_day
