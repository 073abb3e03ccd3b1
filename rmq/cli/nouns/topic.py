"""The verbs of `rmq topic`."""

from fnmatch import fnmatchcase
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
from rmq.cli.admin.progress import queue_progress
from rmq.cli.admin.topics import (
    delete_topic,
    groups_of,
    kind_of,
    perm_text,
    topic_fields,
    topic_overview,
    topic_status,
    update_topic,
)
from rmq.cli.failures import ExplainedError, Failure, explain_no_topic
from rmq.cli.nouns.verb import confirm_deletion, register_verb, yes_option
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import is_dlq_topic, is_retry_topic

KINDS: Final = ("normal", "fifo", "delay", "transaction", "mixed", "lite")
PERMS: Final = {"r": "4", "w": "2", "rw": "6"}
MAX_QUEUES: Final = 65_536

_topic = click.argument("topic")
_kind = click.option(
    "--kind", type=click.Choice(KINDS), help="Messages that the topic accepts."
)
_attributes = click.option(
    "-a", "--attribute", "pairs", multiple=True, metavar="NAME=VALUE",
    help="Attribute of the topic; NAME= removes it. Repeatable.",
)  # fmt: skip


@register_verb("topic", "ls", "System topics, retries and dead letters need --all.")
@click.argument("pattern", default="*")
@click.option("-a", "--all", "shows_all", is_flag=True, help="Include system topics.")
def list_topics(admin: AdminClient, pattern: str, *, shows_all: bool) -> Output:
    topics = admin.topics() if shows_all else admin.user_topics()
    found = [each for each in topics if fnmatchcase(each, pattern)]
    return topic_overview(admin, found)


@register_verb("topic", "info")
@_topic
def show_topic(admin: AdminClient, topic: str) -> Output:
    hosts = admin.topic_brokers(topic)
    config = _fetch_config(admin, hosts[0], topic) or {}
    queues = topic_status(admin, topic, None)
    assert isinstance(queues, Table), topic
    lags = {group: _lag(admin, group, topic) for group in groups_of(admin, topic)}
    facts = {
        "topic": topic,
        "kind": kind_of(config),
        "perm": perm_text(config),
        "brokers": sorted({each.name for each in hosts}),
        "queues": len(queues.rows),
        "messages": sum(int(str(row[3])) - int(str(row[2])) for row in queues.rows),
        "groups": [f"{group} (lag {lag:,})" for group, lag in lags.items()],
    }
    return Sheet(facts, "offsets", queues)


def _lag(admin: AdminClient, group: str, topic: str) -> int:
    return sum(
        each["brokerOffset"] - each["consumerOffset"]
        for _, each in queue_progress(admin, group, topic)
    )


def _fetch_config(
    admin: AdminClient, host: BrokerAddress, topic: str
) -> dict[str, Any] | None:
    """Return the settings of a topic on a broker; None if it has no such topic."""
    code = RequestCode.GET_TOPIC_CONFIG
    try:
        config = admin.request_json(host.address, code, {"topic": topic})
    except AnswerRefused as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        raise
    assert isinstance(config, dict), topic
    return config


@register_verb("topic", "create")
@_topic
@click.option(
    "-q", "--queues", type=click.IntRange(1, MAX_QUEUES), default=8, show_default=True,
    help="Queues on each broker.",
)  # fmt: skip
@_kind
@click.option(
    "--perm", type=click.Choice(list(PERMS)), default="rw", show_default=True,
    help="r: consumers may read; w: producers may send.",
)  # fmt: skip
@_attributes
@broker_or_cluster
def create_topic(
    admin: AdminClient,
    broker: str | None,
    cluster: str | None,
    topic: str,
    queues: int,
    kind: str | None,
    perm: str,
    pairs: tuple[str, ...],
) -> Output:
    attributes = _attribute_changes(pairs, kind)
    brokers = resolve_brokers(admin, broker, cluster)
    for each in brokers:
        if _fetch_config(admin, each, topic) is not None:
            raise ExplainedError(
                Failure(
                    f"topic {topic} exists on {each.name or each.address}",
                    "create does not change a topic",
                    f"rmq topic set {quote(topic)} --queues {queues}",
                )
            )
    update_topic(
        admin, broker, cluster, topic, queues, queues, PERMS[perm], attributes,
        order=False, unit=False, unit_sub=False,
    )  # fmt: skip
    rows = [(topic, each.name or each.address, queues) for each in brokers]
    return Table(("topic", "broker", "queues"), rows)


@register_verb(
    "topic", "set",
    "It changes each broker that has the topic, and keeps other settings.",
)  # fmt: skip
@_topic
@click.option(
    "-q", "--queues", type=click.IntRange(1, MAX_QUEUES), help="Queues on each broker."
)
@_kind
@click.option(
    "--perm", type=click.Choice(list(PERMS)),
    help="r: consumers may read; w: producers may send.",
)  # fmt: skip
@_attributes
def change_topic(
    admin: AdminClient,
    topic: str,
    queues: int | None,
    kind: str | None,
    perm: str | None,
    pairs: tuple[str, ...],
) -> Output:
    attributes = _attribute_changes(pairs, kind)
    if queues is None and perm is None and attributes is None:
        raise click.UsageError("name a setting: --queues, --kind, --perm, --attribute")
    changes: dict[str, object] = {}
    if queues is not None:
        changes |= {"readQueueNums": queues, "writeQueueNums": queues}
    if perm is not None:
        changes["perm"] = PERMS[perm]
    if attributes is not None:
        changes["attributes"] = attributes
    _check_known(admin, topic)
    rows = []
    for host in admin.topic_brokers(topic):
        config = _fetch_config(admin, host, topic)
        if config is not None:
            fields = topic_fields(topic, config) | changes
            admin.request(host.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            rows.append((topic, host.name, "changed"))
    return Table(("topic", "broker", "state"), rows)


def _attribute_changes(pairs: tuple[str, ...], kind: str | None) -> str | None:
    """Return the changes of attributes as request 17 has them; None without any."""
    for pair in pairs:
        if not pair.partition("=")[0] or "=" not in pair or "," in pair:
            raise click.BadParameter(f"{pair}: write NAME=VALUE", param_hint="-a")
    changes = [f"-{pair[:-1]}" if pair.endswith("=") else f"+{pair}" for pair in pairs]
    if kind:
        changes.append(f"+message.type={kind.upper()}")
    return ",".join(changes) or None


@register_verb("topic", "rm")
@click.argument("topics", nargs=-1, required=True, shell_complete=completion.topics)
@one_cluster_option
@yes_option
def remove_topics(
    admin: AdminClient, topics: tuple[str, ...], cluster: str | None, *, is_sure: bool
) -> Output:
    for each in topics:
        _check_known(admin, each)
    confirm_deletion(f"Delete {', '.join(topics)} with all messages?", is_sure=is_sure)
    for each in topics:
        delete_topic(admin, cluster, each)
    return Table(("topic", "state"), [(each, "deleted") for each in topics])


@register_verb("topic", "clear", "Groups continue at the next message that is sent.")
@_topic
@yes_option
def clear_topic(admin: AdminClient, topic: str, *, is_sure: bool) -> Output:
    _check_known(admin, topic)
    if is_retry_topic(topic) or is_dlq_topic(topic):
        raise click.UsageError(f"{topic} belongs to a group: rmq group rm deletes it")
    if admin.route(topic).get("topicQueueMappingByBroker"):
        raise click.UsageError(f"{topic} is static: its offsets cannot begin again")
    configs = {
        host: config
        for host in admin.topic_brokers(topic)
        if (config := _fetch_config(admin, host, topic)) is not None
    }
    confirm_deletion(f"Delete all messages of {topic}?", is_sure=is_sure)
    rows = []
    for host, config in configs.items():
        where = {"topic": topic}
        admin.request(host.address, RequestCode.DELETE_TOPIC_IN_BROKER, where)
        attributes = (config.get("attributes") or {}).items()
        fields = topic_fields(topic, config)
        if attributes:
            fields["attributes"] = ",".join(
                f"+{key}={value}" for key, value in attributes
            )
        admin.request(host.address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        rows.append((topic, host.name, "cleared"))
    return Table(("topic", "broker", "state"), rows)


def _check_known(admin: AdminClient, topic: str) -> None:
    """Fail if there is no route of a topic."""
    try:
        admin.route(topic)
    except AnswerRefused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        failure = explain_no_topic(topic, admin)
        raise ExplainedError(failure, is_refusal=True) from error
