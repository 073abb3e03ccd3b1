"""Commands that reset or copy offsets of consumer groups."""

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    broker_option,
    cluster_option,
    register_command,
    sort_rows,
    topic_option,
)
from rmq.cli.admin.progress import queue_progress
from rmq.cli.terminal.text import parse_time_ms
from rmq.client.admin import AdminClient
from rmq.protocol.codes import RequestCode


@register_command("resetOffsetByTime")
@click.option("-g", "--group", required=True)
@topic_option
@click.option(
    "-s",
    "--timestamp",
    required=True,
    metavar="TIME",
    help="now, milliseconds, 10m (ago), ISO, or Java's y-M-d#H:m:s:S.",
)
@bool_option("-f", "--force", default=True)
@click.option("-c", "--cplus", is_flag=True, help="Ignored.")
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
) -> Output:
    if offset != -1 and (queue < 0 or broker is None):
        raise click.UsageError("-o needs -q and -b or -B, which name the queue")
    return _reset(
        admin,
        group,
        topic,
        parse_time_ms(timestamp),
        broker=broker,
        queue=queue,
        offset=offset,
        force=force,
    )


@register_command("skipAccumulatedMessage")
@click.option("-g", "--group", required=True)
@topic_option
@bool_option("-f", "--force", default=True)
@cluster_option
def skip_accumulated_message(
    admin: AdminClient, group: str, topic: str, cluster: str | None, *, force: bool
) -> Output:
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
    addresses = (
        [broker] if broker else [host.address for host in admin.topic_brokers(topic)]
    )
    for address in addresses:
        table = admin.request_json(address, code, fields)["offsetTable"]
        rows += [
            (each["brokerName"], each["queueId"], at) for each, at in table.items()
        ]
    return Table(("brokerName", "queueId", "offset"), sort_rows(rows))


@register_command("cloneGroupOffset")
@click.option("-s", "--srcGroup", "source", required=True)
@click.option("-d", "--destGroup", "target", required=True)
@topic_option
@bool_option("-o", "--offline", default=False)
def clone_group_offset(
    admin: AdminClient, source: str, target: str, topic: str, *, offline: bool
) -> Output:
    fields = {
        "srcGroup": source, "destGroup": target, "topic": topic, "offline": offline,
    }  # fmt: skip
    for host in admin.topic_brokers(topic):
        admin.request(host.address, RequestCode.CLONE_GROUP_OFFSET, fields)
    rows = [
        (queue["brokerName"], queue["queueId"], each["consumerOffset"])
        for queue, each in queue_progress(admin, target, topic)
    ]
    return Table(("brokerName", "queueId", "offset"), sort_rows(rows))
