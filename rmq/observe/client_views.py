"""View of clients: consumers and producers that are connected."""

from collections import Counter
from typing import Any, Final, NamedTuple

from rmq.observe.client_names import language_name, library_text, protocol_name
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.observe.queries import ListQuery, Query, Row, round_rate, view_head
from rmq.observe.snapshot import work_of
from rmq.plugin.clients import Member
from rmq.remoting.connection import Connection
from rmq.remoting.turns import TurnTaker

MAX_VERSIONS: Final = 12


class ConnectedMember(NamedTuple):
    """A client in a group."""

    kind: str
    group: str
    connection: "Connection"
    member: Member
    library: str


async def clients_view(broker: MonitoredBroker, query: Query) -> dict[str, Any]:
    """Return consumers and producers that are online, one row for each group and
    client.

    `versions`: the libraries of the matching clients, and the number of clients of
    each.
    """
    wanted = ListQuery(query, ("group", "client"))
    turns = TurnTaker(broker.next_turn)
    found: list[tuple[Any, ConnectedMember]] = []
    versions: Counter[str] = Counter()
    total = 0
    for kind, table in (("consumer", broker.consumers), ("producer", broker.producers)):
        for name in table.group_names():
            for connection, member in table.members(name).items():
                total += 1
                library = library_text(member, connection)
                if wanted.matches(f"{name} {member.client_id} {library}"):
                    each = ConnectedMember(kind, name, connection, member, library)
                    key = name if wanted.sort == "group" else member.client_id
                    found.append(((key, id(each)), each))
                    versions[library] += 1
            await turns()
    rows = []
    for each in await wanted.select(found, turns):
        rows.append(_client_row(broker, each))
        await turns()
    return {
        **view_head(broker), "total": total, "found": len(found), "start": wanted.start,
        "versions": versions.most_common(MAX_VERSIONS), "rows": rows,
    }  # fmt: skip


def _client_row(broker: MonitoredBroker, each: ConnectedMember) -> Row:
    """Return the row of a client; `done` and `ms` are known while messages wait for the
    client.

    For a gRPC client, `done` is unknown in the first view that shows the client.
    """
    member, connection = each.member, each.connection
    done = in_flight = None
    if each.kind == "consumer":
        done, in_flight = work_of(broker, each.group, connection)
    return {
        "kind": each.kind, "group": each.group, "client": member.client_id,
        "address": connection.remote_address,
        "language": language_name(member.language),
        "protocol": protocol_name(connection),
        "version": member.version, "library": each.library,
        "done": None if done is None else round_rate(done),
        "ms": round(1_000 / done, 1) if done and in_flight else None,
        "in_hand": in_flight,
        "heard_ms": max(0, broker.clock.now_ms() - member.last_heartbeat_ms),
    }  # fmt: skip
