"""/metrics, /healthz, /readyz and /api/problems of a broker.

/healthz answers while the process serves requests; without an answer a supervisor may
kill the process.

/readyz answers 200 if this broker serves clients, or 503 with a line for each reason.
The store must accept messages (on a slave: be a copy of the master's store).  A name
server must know this broker, and no stop may be in progress.
"""

from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus

import msgspec
import trio

from rmq.http.server import Page, Pages
from rmq.observe import views
from rmq.observe.metrics import java, own
from rmq.observe.metrics.exposition import CONTENT_TYPE, Meter, expose
from rmq.observe.monitored_broker import MonitoredBroker
from rmq.remoting.server import RemotingServer

PORTS = ("main", "fast")
"""The ports of the broker alone: metrics do not count requests to its name server."""


def broker_pages(
    broker: MonitoredBroker, server: RemotingServer, is_stopping: Callable[[], bool]
) -> Pages:
    """Return the pages by path."""
    return {
        "/metrics": partial(_metrics, broker, server),
        "/healthz": _health,
        "/readyz": partial(_readiness, broker, is_stopping),
        "/api/problems": partial(_problems, broker),
    }


async def _metrics(broker: MonitoredBroker, server: RemotingServer) -> Page:
    (_, of_java, labels), (_, of_rmq, _) = broker_scopes(broker, server)
    text = await expose(of_java, {**labels, **java.SCOPE})
    text += await expose(of_rmq, labels)
    return Page(bytes(text), content_type=CONTENT_TYPE)


def broker_scopes(broker: MonitoredBroker, server: RemotingServer) -> Iterator[Meter]:
    """Yield the metrics with names of Java, then the metrics of rmq."""
    labels = java.base_labels(broker)
    requests = java.Requests(
        server.rpc_times(),
        server.waiting_counts(*PORTS),
        server.statistics().reactor.held,
    )
    yield java.METER, java.families(broker, requests), labels
    yield own.METER, own.families(broker, server), labels


async def _problems(broker: MonitoredBroker) -> Page:
    found = await views.problems_view(broker, {})
    return Page(msgspec.json.encode(found), content_type="application/json")


async def _health() -> Page:
    await trio.lowlevel.checkpoint()
    return Page(b"alive\n")


async def _readiness(broker: MonitoredBroker, is_stopping: Callable[[], bool]) -> Page:
    await trio.lowlevel.checkpoint()
    reasons = list(reasons_against(broker, is_stopping=is_stopping()))
    if reasons:
        text = "".join(f"{reason}\n" for reason in reasons)
        return Page(text.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ready\n")


def reasons_against(broker: MonitoredBroker, *, is_stopping: bool) -> list[str]:
    """Return the reasons why this broker is not ready, empty if it is."""
    reasons = ["a stop is in progress"] if is_stopping else []
    durability, replica = broker.store.durability, broker.replication.fetcher
    if replica is None:
        if not durability.is_writable:
            reasons.append(durability.refuse_reason)
    elif durability.refusal is not None:
        reasons.append(durability.refusal.text)
    elif not replica.is_copy:
        reasons.append(replica.state)
    servers = broker.name_servers.statistics()
    if servers and not any(one.is_registered for one in servers):
        reasons += [
            f"name server {one.address}: {one.error or 'it refused the registration'}"
            for one in servers
        ]
    return reasons
