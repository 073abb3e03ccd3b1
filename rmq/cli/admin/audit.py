"""The command that shows who changed what."""

import click

from rmq.cli.admin.base import Shown, Table, admin_command, broker_option, targets
from rmq.cli.terminal.text import harmless, iso
from rmq.client.admin import AdminClient
from rmq.protocol.codes import OwnRequestCode


@admin_command("auditLog")
@broker_option
@click.option(
    "-c", "--count", type=click.IntRange(1, 10_000), default=100, show_default=True
)
def audit_log(admin: AdminClient, broker: str | None, count: int) -> Shown:
    """Show who changed topics, groups, offsets, keys and users in the last week."""
    asked = targets(admin, broker, None) if broker else admin.masters()
    rows: list[tuple[object, ...]] = []
    for each in asked:
        found = admin.value(
            each.address, OwnRequestCode.GET_AUDIT_LOG, {"maxNum": count}
        )
        rows += [
            (
                iso(change["time_ms"]), each.name or each.address, change["user"],
                change["source"], change["action"], harmless(change["subject"]),
                harmless(change["change"]),
            )
            for change in found
        ]  # fmt: skip
    rows.sort(key=lambda row: str(row[0]))
    columns = "time", "broker", "user", "source", "action", "subject", "change"
    return Table(columns, rows[-count:])
