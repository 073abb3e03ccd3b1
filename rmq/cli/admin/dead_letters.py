"""The command that resends dead letters."""

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    broker_option,
    group_option,
    register_command,
    resolve_brokers,
)
from rmq.client.admin import AdminClient
from rmq.protocol.codes import OwnRequestCode


@register_command("resendDeadLetters")
@broker_option
@group_option
@click.option(
    "-o", "--offsets", metavar="N,…", help="Offsets in the dead-letter queue."
)
@click.option("-t", "--topic", help="Original topic. Needs --tag.")
@click.option("--tag", help="Tag. Needs -t. '' selects messages without a tag.")
@click.option("--all", "is_all", is_flag=True, help="All dead letters, at most 10,000.")
def resend_dead_letters(
    admin: AdminClient,
    broker: str | None,
    group: str,
    offsets: str | None,
    topic: str | None,
    tag: str | None,
    *,
    is_all: bool,
) -> Output:
    chosen = bool(offsets) + (topic is not None and tag is not None) + is_all
    if chosen != 1:
        raise click.UsageError("give --offsets, or -t and --tag, or --all")
    if offsets and broker is None:
        raise click.UsageError("--offsets needs -b or -B: each broker has its own")
    fields: dict[str, object] = {"group": group}
    if offsets:
        fields["offsets"] = offsets
    elif is_all:
        fields["all"] = "true"
    else:
        fields |= {"topic": topic, "tag": tag}
    asked = resolve_brokers(admin, broker, None) if broker else admin.masters()
    rows: list[tuple[object, ...]] = []
    for each in asked:
        code = OwnRequestCode.RESEND_DEAD_LETTERS
        found = admin.request_json(each.address, code, fields)
        place = each.name or each.address
        rows.append((place, found["resent"], found["looked"], found["skipped"]))
    return Table(("broker", "resent", "looked", "skipped"), rows)
