"""The check of `rmq doctor` that the clients of a group have the same subscriptions."""

from collections.abc import Collection, Mapping
from typing import Final

from rmq.cli.doctor.findings import Finding, Findings
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError
from rmq.core.humanize import count_text
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode

MAX_GROUPS: Final = 1_000
"""Maximum number of groups whose subscriptions are compared."""


def check_subscriptions(admin: AdminClient, reported: Collection[str]) -> Findings:
    """Whether the clients of each group have the same subscriptions.

    Groups with a reported problem are left out.
    """
    every = admin.groups()
    groups = [group for group in every if group not in reported]
    is_well = True
    for group in groups[:MAX_GROUPS]:
        differences = compare_subscriptions(_fetch_subscriptions(admin, group))
        for difference in differences:
            is_well = False
            yield Finding(
                f"group {group}", difference, True,
                "give all clients of a group the same subscriptions, or use several "
                "groups: clients miss messages now",
            )  # fmt: skip
    if is_well:
        rest = f"; problems above: {len(every) - len(groups)}"
        text = (
            f"{count_text(len(every), 'group')}, and all clients of a group have the "
            f"same subscriptions{rest if len(every) > len(groups) else ''}"
        )
        yield Finding("groups", text)


def _fetch_subscriptions(admin: AdminClient, group: str) -> dict[str, dict[str, str]]:
    """Return topics and filters that each client of a group reports, by client id."""
    try:
        members = admin.group_connections(group)["connectionSet"]
    except AnswerRefused:
        return {}
    if len(members) < 2:
        return {}
    found = {}
    for member in members:
        for broker in admin.masters():
            fields = {"consumerGroup": group, "clientId": member["clientId"]}
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            try:
                info = admin.request_json(broker.address, code, fields)
            except RmqError:
                continue
            found[member["clientId"]] = {
                each["topic"]: each.get("subString") or "*"
                for each in info.get("subscriptionSet") or ()
            }
            break
    return found


def compare_subscriptions(wanted: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the differences of each client from the first one."""
    found = []
    clients = sorted(wanted)
    for client in clients[1:]:
        first = clients[0]
        for topic in sorted(set(wanted[first]) | set(wanted[client])):
            ours, theirs = wanted[first].get(topic), wanted[client].get(topic)
            if ours != theirs:
                found.append(
                    f"{topic}: {first} subscribes to {ours or 'nothing'}, {client} to "
                    f"{theirs or 'nothing'}"
                )
    return found
