"""Commands for brokers and clusters."""

import re
import shlex
import time
from typing import Final

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    broker_option,
    broker_or_cluster,
    cluster_option,
    interval_option,
    print_output,
    register_command,
    resolve_broker,
    resolve_brokers,
    send_to_brokers,
    sort_rows,
)
from rmq.cli.failures import ExplainedError, Failure
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.core.errors import PeerError
from rmq.protocol.codes import RequestCode

_NEAR: Final = re.compile(r"did you mean (\S+)\?")


@register_command("clusterList")
@click.option("-m", "--moreStats", "more", is_flag=True, help="Show totals by day.")
@interval_option
@cluster_option
def cluster_list(
    admin: AdminClient, interval: float | None, cluster: str | None, *, more: bool
) -> Output:
    make = _daily_totals if more else _traffic_table
    while interval is not None:
        print_output(make(admin, cluster), as_json=False)
        time.sleep(interval)
    return make(admin, cluster)


def _runtime_info(admin: AdminClient, address: str) -> dict[str, str]:
    """Return the runtime information of a broker; empty if it does not answer."""
    try:
        table = admin.request_json(address, RequestCode.GET_BROKER_RUNTIME_INFO)[
            "table"
        ]
    except PeerError:
        return {}
    return dict(table)


def _traffic_table(admin: AdminClient, cluster: str | None) -> Table:
    rows = []
    now_ms = time.time() * 1_000
    for each in admin.brokers(cluster):
        facts = _runtime_info(admin, each.address)
        earliest_ms = int(facts.get("earliestMessageTimeStamp", -1))
        hours = (now_ms - earliest_ms) / 3_600_000 if earliest_ms > 0 else 0.0
        rows.append(
            (
                each.cluster, each.name, each.broker_id, each.address,
                facts.get("brokerVersionDesc", "unreachable"),
                _shortest_rate(facts.get("putTps")),
                _shortest_rate(facts.get("getTransferredTps")),
                hours,
                float(facts.get("commitLogDiskRatio", 0)),
                facts.get("brokerActive") == "true",
            )
        )  # fmt: skip
    columns = (
        "clusterName", "brokerName", "brokerId", "addr", "version", "inTPS", "outTPS",
        "hour", "space", "activated",
    )  # fmt: skip
    return Table(columns, rows)


def _shortest_rate(rates: str | None) -> float:
    """Return the rate over the shortest time; a new Java broker reports no rate."""
    return float(((rates or "").split() or ["0"])[0])


def _daily_totals(admin: AdminClient, cluster: str | None) -> Table:
    rows = []
    for each in admin.brokers(cluster):
        facts = _runtime_info(admin, each.address)
        totals = []
        for name in ("msgPutTotal", "msgGetTotal"):
            yesterday, today, now = (
                int(facts.get(name + part, 0))
                for part in ("YesterdayMorning", "TodayMorning", "TodayNow")
            )
            totals.append((today - yesterday, now - today))
        (put, put_today), (got, got_today) = totals
        rows.append((each.cluster, each.name, put, got, put_today, got_today))
    columns = (
        "clusterName", "brokerName", "inTotalYest", "outTotalYest", "inTotalToday",
        "outTotalToday",
    )  # fmt: skip
    return Table(columns, rows)


@register_command("brokerStatus")
@broker_or_cluster
def broker_status(
    admin: AdminClient, broker: str | None, cluster: str | None
) -> Output:
    asked = resolve_brokers(admin, broker, cluster, slaves=True)
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    found = {
        each.address: admin.request_json(each.address, code)["table"] for each in asked
    }
    if len(found) == 1:
        return dict(sorted(found[asked[0].address].items()))
    return found


@register_command("brokerConsumeStats")
@broker_option
@click.option("-t", "--timeoutMillis", "timeout_ms", type=int, help="Ignored.")
@click.option("-l", "--level", type=int, default=0, help="Smallest lag to show.")
@bool_option("-o", "--order", default=False)
def broker_consume_stats(
    admin: AdminClient,
    broker: str | None,
    timeout_ms: int | None,
    level: int,
    *,
    order: bool,
) -> Output:
    host = resolve_broker(admin, broker)
    code = RequestCode.GET_BROKER_CONSUME_STATS
    answer = admin.request_json(host.address, code, {"isOrder": order})
    rows: list[tuple[object, ...]] = []
    for entry in answer["consumeStatsList"]:
        for group, stats in entry.items():
            for queue, each in (q for s in stats for q in s["offsetTable"].items()):
                diff = each["brokerOffset"] - each["consumerOffset"]
                if diff >= level:
                    name = queue["topic"], group, queue["brokerName"], queue["queueId"]
                    offsets = each["brokerOffset"], each["consumerOffset"]
                    rows.append((*name, *offsets, diff, each["lastTimestamp"]))
    columns = (
        "topic", "group", "brokerName", "queueId", "brokerOffset", "consumerOffset",
        "diff", "lastTime",
    )  # fmt: skip
    return Table(columns, sort_rows(rows))


@register_command("getBrokerConfig")
@broker_or_cluster
@click.option("-k", "--key", "pattern", metavar="REGEX", help="Only these keys.")
def get_broker_config(
    admin: AdminClient, broker: str | None, cluster: str | None, pattern: str | None
) -> Output:
    asked = resolve_brokers(admin, broker, cluster, slaves=True)
    code = RequestCode.GET_BROKER_CONFIG
    found = {
        each.address: {
            key: value
            for key, value in parse_config(
                admin.request(each.address, code).body
            ).items()
            if pattern is None or re.search(pattern, key)
        }
        for each in asked
    }
    return found[asked[0].address] if len(found) == 1 else found


def parse_config(body: bytes) -> dict[str, str]:
    """Parse the `key=value` lines of a server; sort by key."""
    lines = body.decode("utf-8", "replace").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key: value for key, _, value in sorted(pairs)}


@register_command("updateBrokerConfig")
@broker_or_cluster
@click.option("-k", "--key", required=True, help="Key to change.")
@click.option("-v", "--value", required=True, help="New value.")
@click.option("-a", "--updateAllBroker", "every", is_flag=True, help="Slaves too.")
def update_broker_config(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    key: str,
    value: str,
    *,
    every: bool,
) -> Output:
    body = f"{key}={value}\n".encode()
    asked = resolve_brokers(admin, broker, cluster, slaves=every)
    for each in asked:
        answer = admin.request(
            each.address, RequestCode.UPDATE_BROKER_CONFIG, body=body
        )
        if answer.remark:
            raise _explain_ignored(each.address, key, value, answer.remark)
    return [f"update broker config success, {each.address}" for each in asked]


def _explain_ignored(address: str, key: str, value: str, remark: str) -> ExplainedError:
    """Return the error for a key that a broker does not have."""
    near = _NEAR.search(remark)
    remedy = ""
    if near is not None:
        values = f"-k {near[1]} -v {shlex.quote(value)}"
        remedy = f"rmq admin updateBrokerConfig -b {address} {values}"
    why = remark.removeprefix("ignored: ").removeprefix(f"{key}: ")
    return ExplainedError(
        Failure(f"{address} has no key {key}, and changed nothing", why, remedy),
        is_refusal=True,
    )


@register_command("resetMasterFlushOffset")
@click.option("-b", "--brokerAddr", "broker", required=True)
@click.option("-o", "--offset", type=int, required=True)
def reset_master_flush_offset(admin: AdminClient, broker: str, offset: int) -> Output:
    fields = {"masterFlushOffset": offset}
    admin.request(broker, RequestCode.RESET_MASTER_FLUSH_OFFSET, fields)
    return [f"master flush offset of {broker} is {offset}"]


@register_command("exportPopRecord")
@broker_or_cluster
@bool_option("-d", "--dryRun", "is_dry", default=False)
def export_pop_record(
    admin: AdminClient, broker: str | None, cluster: str | None, *, is_dry: bool
) -> Output:
    brokers = resolve_brokers(admin, broker, cluster)
    if is_dry:
        return [f"{each.address} success" for each in brokers]
    return send_to_brokers(admin, brokers, RequestCode.POP_ROLLBACK)


@register_command("haStatus")
@broker_or_cluster
@interval_option
def ha_status(
    admin: AdminClient, broker: str | None, cluster: str | None, interval: float | None
) -> Output:
    asked = resolve_brokers(admin, broker, cluster)
    while interval is not None:
        print_output(_slave_table(admin, asked), as_json=False)
        time.sleep(interval)
    return _slave_table(admin, asked)


def _slave_table(admin: AdminClient, asked: list[BrokerAddress]) -> Table:
    rows: list[tuple[object, ...]] = []
    for each in asked:
        info = admin.request_json(each.address, RequestCode.GET_BROKER_HA_STATUS)
        if not info.get("master", True):
            link = info.get("haClientRuntimeInfo") or {}
            slave = each.address, link.get("maxOffset"), None, None
            master, reason = link.get("masterAddr"), link.get("notFollowing")
            shown = f"{master or '-'} ({reason})" if reason else master
            rows.append((shown, None, None, *slave))
            continue
        end = info["masterCommitLogMaxOffset"]
        slaves = info.get("haConnectionInfo") or [{}]
        rows += [
            (
                each.address, end, info["inSyncSlaveNums"], slave.get("addr"),
                slave.get("slaveAckOffset"), slave.get("diff"), slave.get("inSync"),
            )
            for slave in slaves
        ]  # fmt: skip
    columns = (
        "masterAddr", "masterCommitLogMaxOffset", "inSyncSlaveNum", "slaveAddr",
        "slaveAckOffset", "diff", "inSync",
    )  # fmt: skip
    return Table(columns, rows)
