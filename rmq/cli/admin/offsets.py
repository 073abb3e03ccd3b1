"""Commands that change the offsets of consumer groups."""

import click

from rmq.cli.admin.base import (
    Shown,
    Table,
    admin_command,
    broker_option,
    cluster_option,
    flag,
    pick,
    topic_option,
)
from rmq.cli.admin.groups import progress
from rmq.cli.terminal.text import time_ms
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode


@admin_command("resetOffsetByTime")
@click.option("-g", "--group", required=True)
@topic_option
@click.option("-s", "--timestamp", required=True, help="now, ms, or y-M-d#H:m:s:S")
@flag("-f", "--force", default=True)
@click.option("-c", "--cplus", is_flag=True, help="For consumers in C++.")
@broker_option
@click.option("-q", "--queue", type=int, default=-1)
@click.option("-o", "--offset", type=int, default=-1)
def reset_offset_by_time(  # noqa: PLR0913 - one parameter for each option
    admin: AdminClient,
    group: str,
    topic: str,
    timestamp: str,
    broker: str | None,
    queue: int,
    offset: int,
    *,
    force: bool,
    cplus: bool,
) -> Shown:
    """Let a group continue at a time, in all queues of a topic or in one."""
    if offset != -1 and (queue < 0 or broker is None):
        raise click.UsageError("-o needs -q and -b or -B, which name the queue")
    return _reset(
        admin,
        group,
        topic,
        time_ms(timestamp),
        broker=broker,
        queue=queue,
        offset=offset,
        force=force,
    )


@admin_command("skipAccumulatedMessage")
@click.option("-g", "--group", required=True)
@topic_option
@flag("-f", "--force", default=True)
@cluster_option
def skip_accumulated_message(
    admin: AdminClient, group: str, topic: str, cluster: str | None, *, force: bool
) -> Shown:
    """Let a group continue at the end of a topic."""
    return _reset(admin, group, topic, -1, force=force)


def _reset(
    admin: AdminClient,
    group: str,
    topic: str,
    timestamp_ms: int,
    *,
    broker: str | None = None,
    queue: int = -1,
    offset: int = -1,
    force: bool = True,
) -> Table:
    fields = {
        "topic": topic,
        "group": group,
        "timestamp": timestamp_ms,
        "isForce": force,
        "queueId": queue,
        "offset": offset,
    }
    rows: list[tuple[object, ...]] = []
    code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    addresses = [broker] if broker else [host.address for host in admin.hosts(topic)]
    for address in addresses:
        table = admin.value(address, code, fields)["offsetTable"]
        rows += [
            (each["brokerName"], each["queueId"], at) for each, at in table.items()
        ]
    return Table(("brokerName", "queueId", "offset"), pick(rows))


@admin_command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True)
@click.option("-d", "--destGroup", "target", required=True)
@topic_option
@flag("-o", "--offline", default=False)
def clone_group_offset(
    admin: AdminClient, source: str, target: str, topic: str, *, offline: bool
) -> Shown:
    """Copy the offsets of one group in a topic to another group."""
    fields = {
        "srcGroup": source, "destGroup": target, "topic": topic, "offline": offline,
    }  # fmt: skip
    for host in admin.hosts(topic):
        admin.ask(host.address, RequestCode.CLONE_GROUP_OFFSET, fields)
    rows = [
        (queue["brokerName"], queue["queueId"], each["consumerOffset"])
        for queue, each in progress(admin, target, topic)
    ]
    return Table(("brokerName", "queueId", "offset"), pick(rows))
