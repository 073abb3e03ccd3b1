"""The verbs of `rmq group`."""

from collections.abc import Mapping
from shlex import quote
from typing import Any, Final

import click

from rmq.cli import completion
from rmq.cli.admin.base import (
    Output,
    Sheet,
    Table,
    broker_or_cluster,
    one_cluster_option,
    resolve_brokers,
)
from rmq.cli.admin.groups import delete_sub_group, fetch_group_configs, group_names
from rmq.cli.admin.offsets import reset_offset_by_time
from rmq.cli.admin.progress import consumer_progress, library_text, progress_table
from rmq.cli.failures import ExplainedError, Failure
from rmq.cli.nouns.verb import confirm_deletion, register_verb, yes_option
from rmq.client.admin import AdminClient, BrokerAddress, GroupUnknown
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode

PLACES = {"first": "0", "last": "-1"}

DEFAULTS: Final = {
    "consumeEnable": True, "consumeFromMinEnable": False,
    "consumeBroadcastEnable": False, "consumeMessageOrderly": False,
    "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": True,
}  # fmt: skip
"""The settings of a group that mqadmin creates."""

_group = click.argument("group")
_retries = click.option(
    "--retries", "retryMaxTimes", type=click.IntRange(-1, 1_000),
    help="Attempts after a failure, before a message is dead. [default: 16]",
)  # fmt: skip
_ordered = click.option(
    "--ordered/--unordered", "consumeMessageOrderly", default=None,
    help="For gRPC clients: deliver messages of a message group in order.",
)  # fmt: skip


@register_verb("group", "ls")
@click.option(
    "-c", "--clusterName", "cluster", metavar="NAME", help="Only of a cluster."
)
def list_groups(admin: AdminClient, cluster: str | None) -> Output:
    return progress_table(admin, group_names(admin, cluster), cluster)


@register_verb("group", "info")
@_group
def show_group(admin: AdminClient, group: str) -> Output:
    online = _fetch_connections(admin, group)
    members = online.get("connectionSet") or []
    queues = consumer_progress(admin, group, None, None, show_clients=bool(members))
    assert isinstance(queues, Table), group
    configs = fetch_group_configs(admin, group)
    config: dict[str, Any] = next(iter(configs.values()), {})
    lag = queues.columns.index("diff")
    facts = {
        "group": group,
        "clients": [each["clientId"] for each in members],
        "library": library_text(members),
        "type": online.get("consumeType"),
        "model": online.get("messageModel"),
        "lag": sum(int(str(row[lag])) for row in queues.rows),
        "consumeEnable": config.get("consumeEnable"),
        "retryMaxTimes": config.get("retryMaxTimes"),
    }
    return Sheet(facts, "queues", queues._replace(note=""))


def _fetch_connections(admin: AdminClient, group: str) -> dict[str, Any]:
    """Return the clients of a group; an empty dictionary if there is no client."""
    try:
        return admin.group_connections(group)
    except AnswerRefused as error:
        if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
            raise
        return {}


@register_verb("group", "create")
@_group
@_retries
@_ordered
@broker_or_cluster
def create_group(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    group: str,
    **changes: object,
) -> Output:
    brokers = resolve_brokers(admin, broker, cluster)
    known = fetch_group_configs(admin, group)
    for each in brokers:
        if _broker_key(each) in known:
            raise ExplainedError(
                Failure(
                    f"group {group} exists on {each.name}",
                    "create does not change a group",
                    f"rmq group info {quote(group)}",
                )
            )
    config = DEFAULTS | {"groupName": group} | _settings_of(changes)
    return _write_config(admin, dict.fromkeys(brokers, config), group, "created")


@register_verb(
    "group", "set",
    "It changes each broker that has the group, and keeps other settings.",
)  # fmt: skip
@_group
@_retries
@_ordered
@click.option(
    "--consume/--no-consume", "consumeEnable", default=None,
    help="Allow or forbid its clients to get messages.",
)  # fmt: skip
def change_group(admin: AdminClient, group: str, **changes: object) -> Output:
    if not _settings_of(changes):
        raise click.UsageError("name a setting: --retries, --ordered, --consume")
    known = fetch_group_configs(admin, group)
    if not known:
        raise GroupUnknown(group)
    configs = {
        each: known[_broker_key(each)] | _settings_of(changes)
        for each in admin.masters()
        if _broker_key(each) in known
    }
    return _write_config(admin, configs, group, "changed")


def _broker_key(broker: BrokerAddress) -> str:
    """Return the key of a broker in the answer of `fetch_group_configs`."""
    return f"{broker.cluster}:{broker.name}"


def _settings_of(changes: Mapping[str, object]) -> dict[str, object]:
    """Return the changes that options name."""
    return {name: value for name, value in changes.items() if value is not None}


def _write_config(
    admin: AdminClient,
    configs: Mapping[BrokerAddress, dict[str, Any]],
    group: str,
    state: str,
) -> Table:
    """Write the settings of a group to brokers."""
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    rows = []
    for host, config in configs.items():
        admin.request(host.address, code, body=fastjson.dump_json(config))
        rows.append((group, host.name or host.address, state))
    return Table(("group", "broker", "state"), rows)


@register_verb(
    "group", "reset", "Connected clients may commit another offset a moment later: "
        "stop them first."
)  # fmt: skip
@_group
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "--to", "place", required=True, metavar="TIME",
    help="first, last, now, 10m (ago), 2026-11-21T03:01:54 or milliseconds.",
)  # fmt: skip
@yes_option
def reset_group(
    admin: AdminClient, group: str, topic: str, place: str, *, is_sure: bool
) -> Output:
    confirm_deletion(f"Reset {group} in {topic} to {place}?", is_sure=is_sure)
    return reset_offset_by_time(
        admin, group, topic, PLACES.get(place, place), None, -1, -1,
        force=True, cplus=False,
    )  # fmt: skip


@register_verb("group", "rm")
@click.argument("groups", nargs=-1, required=True, shell_complete=completion.groups)
@one_cluster_option
@yes_option
def remove_groups(
    admin: AdminClient, groups: tuple[str, ...], cluster: str | None, *, is_sure: bool
) -> Output:
    known = set(group_names(admin, cluster))
    for each in groups:
        if each not in known:
            raise GroupUnknown(each)
    confirm_deletion(f"Delete {', '.join(groups)} with all offsets?", is_sure=is_sure)
    for each in groups:
        delete_sub_group(admin, None, cluster, each, remove=True)
    return Table(("group", "state"), [(each, "deleted") for each in groups])
