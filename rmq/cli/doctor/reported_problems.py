"""Problems that a broker reports itself, for `rmq doctor`.

A broker finds such problems by sampling: clients that left a group, slow clients, the
growth of a disk. A broker of Java does not know the request.
"""

from typing import Final

from rmq.cli.doctor.findings import Finding, Findings
from rmq.client.admin import AdminClient, BrokerAddress
from rmq.core.errors import RmqError
from rmq.core.humanize import time_span
from rmq.protocol.codes import OwnRequestCode

DOCTOR: Final = "rmq doctor"
"""The command of problems that this command explains."""

NOT_REPEATED: Final = frozenset({"disk", "not-following"})
"""Kinds of problems that `rmq doctor` checks itself."""


def reported_problems(admin: AdminClient, broker: BrokerAddress) -> Findings:
    """Yield the problems of a broker; a note is not a problem but has a remedy."""
    try:
        view = {"view": "problems"}
        found = admin.request_json(broker.address, OwnRequestCode.GET_VIEW, view)
    except RmqError:
        return  # a broker of Java, or no permission
    for each in found["rows"]:
        if each["kind"] in NOT_REPEATED:
            continue
        for_ms = found["now"] - each["since_ms"] if each["since_ms"] else 0
        since = f" For {time_span(for_ms)}." if for_ms >= 60_000 else ""
        command = each["command"]
        yield Finding(
            each["subject"],
            each["message"] + since,
            each["level"] != "note",
            each["action"],
            "" if command == DOCTOR else command,
        )
    if not found["rows"]:
        yield Finding(broker.name, "reports no problem with its groups and its machine")
