"""The command that shows the audit log."""

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    broker_option,
    register_command,
    resolve_brokers,
)
from rmq.cli.terminal.text import escape_controls, utc_time
from rmq.client.admin import AdminClient
from rmq.protocol.codes import OwnRequestCode


@register_command("auditLog")
@broker_option
@click.option(
    "-c",
    "--count",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum number of changes to show.",
)
def audit_log(admin: AdminClient, broker: str | None, count: int) -> Output:
    asked = resolve_brokers(admin, broker, None) if broker else admin.masters()
    rows: list[tuple[object, ...]] = []
    for each in asked:
        found = admin.request_json(
            each.address, OwnRequestCode.GET_AUDIT_LOG, {"maxNum": count}
        )
        rows += [
            (
                utc_time(change["time_ms"]), each.name or each.address, change["user"],
                change["source"], change["action"], escape_controls(change["subject"]),
                escape_controls(change["change"]),
            )
            for change in found
        ]  # fmt: skip
    rows.sort(key=lambda row: str(row[0]))
    columns = "time", "broker", "user", "source", "action", "subject", "change"
    return Table(columns, rows[-count:])
