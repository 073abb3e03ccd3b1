"""The problems that a broker itself sees, for `rmq doctor`.

Only time shows them: who left a group, which client is slow, how fast a disk fills.  A
Java broker does not know the request, and tells nothing.
"""

from typing import Final

from rmq.cli.doctor.findings import Finding, Findings
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.core.errors import RmqError
from rmq.core.humanize import span
from rmq.protocol.codes import OwnRequestCode

NOT_REPEATED: Final = frozenset({"disk", "not-following"})
"""Kinds that `rmq doctor` finds by itself."""


def reported_problems(admin: AdminClient, broker: BrokerAddress) -> Findings:
    """Ask a broker for its problems; a note is no problem, but has its remedy."""
    try:
        view = {"view": "problems"}
        found = admin.value(broker.address, OwnRequestCode.GET_VIEW, view)
    except RmqError:
        return  # Java, or no right to see it
    for each in found["rows"]:
        if each["kind"] in NOT_REPEATED:
            continue
        for_ms = found["now"] - each["since_ms"] if each["since_ms"] else 0
        since = f" For {span(for_ms)}." if for_ms >= 60_000 else ""
        remedy = each["do"]
        if each["command"]:
            remedy += f" {each['command']}"
        subject = each["place"]
        yield Finding(subject, each["say"] + since, each["level"] != "note", remedy)
    if not found["rows"]:
        yield Finding(broker.name, "sees no problem in its groups and machine")
