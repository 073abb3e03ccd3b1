"""The verbs of `rmq group`."""

from typing import Any

import click

from rmq.cli import completion
from rmq.cli.admin.base import Output, Sheet, Table, one_cluster_option
from rmq.cli.admin.groups import delete_sub_group, fetch_group_configs, group_names
from rmq.cli.admin.offsets import reset_offset_by_time
from rmq.cli.admin.progress import consumer_progress, library_text, progress_table
from rmq.cli.nouns.verb import confirm_deletion, register_verb, yes_option
from rmq.client.admin import AdminClient, GroupUnknown
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode

PLACES = {"first": "0", "last": "-1"}

_group = click.argument("group")


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


@register_verb(
    "group", "reset", "Clients that are connected may commit another offset a moment "
    "later; stop them first."
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
