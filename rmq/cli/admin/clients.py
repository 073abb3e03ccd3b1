"""Commands that show producers and consumers that are online."""

from collections.abc import Iterator
from typing import Any

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    broker_option,
    group_option,
    register_command,
    resolve_broker,
    sort_rows,
    topic_option,
)
from rmq.client.admin import AdminClient
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command


@register_command("consumerConnection")
@group_option
@broker_option
def consumer_connection(admin: AdminClient, group: str, broker: str | None) -> Output:
    if broker:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        found = admin.request_json(broker, code, {"consumerGroup": group})
    else:
        found = admin.group_connections(group)
    assert isinstance(found, dict), group
    return found


@register_command("producerConnection")
@group_option
@topic_option
def producer_connection(admin: AdminClient, group: str, topic: str) -> Output:
    rows: list[tuple[object, ...]] = []
    refusal: AnswerRefused | None = None
    for host in admin.topic_brokers(topic):
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        try:
            found = admin.request_json(host.address, code, {"producerGroup": group})
        except AnswerRefused as error:
            refusal = error
            continue
        rows += [_client_row(each) for each in found["connectionSet"]]
    if not rows and refusal is not None:
        raise refusal
    return Table(("clientId", "clientAddr", "language", "version"), rows)


def _client_row(each: dict[str, Any]) -> tuple[object, ...]:
    return each["clientId"], each["clientAddr"], each["language"], each["version"]


@register_command("producer")
@broker_option
def list_producers(admin: AdminClient, broker: str | None) -> Output:
    host = resolve_broker(admin, broker)
    data = (
        admin.request_json(host.address, RequestCode.GET_ALL_PRODUCER_INFO).get("data")
        or {}
    )
    columns = (
        "group", "clientId", "remoteIP", "language", "version", "lastUpdateTimestamp",
    )  # fmt: skip
    rows = [
        (group, *(each.get(name) for name in columns[1:]))
        for group, members in data.items()
        for each in members
    ]
    return Table(columns, sort_rows(rows))


def running_infos(admin: AdminClient, group: str) -> dict[str, dict[str, Any]]:
    """Return the state that clients of a group report, by client id."""
    return {
        name: fastjson.load_json(answer.body)
        for name, answer in _ask_clients(admin, group)
        if answer.code == ResponseCode.SUCCESS
    }


def _ask_clients(
    admin: AdminClient, group: str, *, client: str | None = None, jstack: bool = False
) -> Iterator[tuple[str, Command]]:
    """Ask the clients of a group for their state; yield their ids and answers.

    A client that does not answer in time is not asked through other brokers.
    """
    for member in admin.group_connections(group)["connectionSet"]:
        name = member["clientId"]
        if client not in (None, name):
            continue
        answer = None
        for broker in admin.masters():
            fields = {"consumerGroup": group, "clientId": name, "jstackEnable": jstack}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            answer = admin.try_request(broker.address, code, fields)
            if answer.code in (ResponseCode.SUCCESS, ResponseCode.CONSUME_MSG_TIMEOUT):
                break
        if answer is not None:
            yield name, answer


@register_command("consumerStatus")
@click.option("-g", "--consumerGroup", "group", required=True, help="Consumer group.")
@click.option("-i", "--clientId", "client", help="Only this client.")
@broker_option
@click.option("-s", "--jstack", "jstack", is_flag=True, help="Include thread stacks.")
def consumer_status(
    admin: AdminClient,
    group: str,
    client: str | None,
    broker: str | None,
    *,
    jstack: bool,
) -> Output:
    if broker and client:
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        fields = {"consumerGroup": group, "clientId": client, "jstackEnable": jstack}
        return {client: admin.request_json(broker, code, fields)}
    answers = _ask_clients(admin, group, client=client, jstack=jstack)
    return {
        name: fastjson.load_json(answer.body)
        if answer.code == ResponseCode.SUCCESS
        else answer.remark
        for name, answer in answers
    }
