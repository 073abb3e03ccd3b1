"""/metrics, /healthz and /readyz of a controller.

The page /healthz answers as long as the process serves. The page /readyz answers 200 if
this controller knows the leader, or 503 with the reason. With 503, this controller
cannot answer brokers, and no group gets a new master.
"""

from collections.abc import Callable, Iterator
from functools import partial
from http import HTTPStatus

import trio

from rmq.controller.server import Controller
from rmq.controller.statistics import ControllerStatistics, GroupStatistics
from rmq.http.server import Page, Pages
from rmq.observe.metrics.exposition import (
    CONTENT_TYPE,
    Family,
    Meter,
    Sample,
    counter_family,
    expose,
    gauge_family,
)
from rmq.observe.metrics.own import (
    METER,
    build_family,
    network_families,
    process_families,
)
from rmq.remoting.server import RemotingServer

NOBODY_LEADS = (
    "no controller is the leader: their state cannot be reached (rmq.etcdEndpoints), "
    "or this controller has just started\n"
)


def controller_pages(controller: Controller, server: RemotingServer) -> Pages:
    """Return the pages by path."""
    return {
        "/metrics": partial(_metrics, controller, server),
        "/healthz": _health,
        "/readyz": partial(_readiness, controller),
    }


async def _metrics(controller: Controller, server: RemotingServer) -> Page:
    [(_, found, labels)] = controller_scopes(controller, server)
    return Page(bytes(await expose(found, labels)), content_type=CONTENT_TYPE)


def controller_scopes(
    controller: Controller, server: RemotingServer
) -> Iterator[Meter]:
    """Yield the metrics of a controller."""
    labels = {"node_type": "controller", "node_id": controller.address}
    yield METER, families(controller, server), labels


async def _health() -> Page:
    await trio.lowlevel.checkpoint()
    return Page(b"alive\n")


async def _readiness(controller: Controller) -> Page:
    await trio.lowlevel.checkpoint()
    if controller.statistics().leader is None:
        return Page(NOBODY_LEADS.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ready\n")


def families(controller: Controller, server: RemotingServer) -> Iterator[Family]:
    """Yield every family of a controller."""
    found = controller.statistics()
    yield build_family()
    yield from _own_families(found)
    yield from _group_families(found)
    yield from network_families(server)
    yield from process_families()


def _own_families(found: ControllerStatistics) -> Iterator[Family]:
    yield gauge_family(
        "rmq_controller_leading",
        "1: this controller is the leader; 0: it is not",
        found.is_leading,
    )
    yield gauge_family(
        "rmq_controller_leader_known",
        "1: this controller knows the leader; 0: it does not",
        found.leader is not None,
    )
    yield gauge_family(
        "rmq_controller_running",
        "number of running controllers",
        len(found.controllers),
    )
    counts = found.counts
    yield Family(
        "rmq_controller_elections_total",
        "counter",
        "elections by this controller, by result",
        [
            Sample(counts.elected, {"result": "elected"}),
            Sample(counts.kept, {"result": "kept"}),
            Sample(counts.failed, {"result": "failed"}),
        ],
    )
    yield counter_family(
        "rmq_controller_unconfirmed_total",
        "requests and elections whose result etcd, or the file, did not confirm",
        counts.unconfirmed,
    )


def _group_families(found: ControllerStatistics) -> Iterator[Family]:
    values: tuple[tuple[str, str, Callable[[GroupStatistics], float]], ...] = (
        ("group_master", "1: the group has a live master; 0: it does not",
         lambda group: group.has_master),
        ("group_epoch", "epoch of the group's master",
         lambda group: group.master_epoch),
        ("group_in_sync", "brokers in the group's sync-state set",
         lambda group: group.in_set),
        ("group_members", "registered brokers of the group",
         lambda group: group.members),
        ("group_living", "live brokers of the group",
         lambda group: group.living),
        ("group_doubtful", "1: the state of the group may be an old copy, and the "
         "controller elects no master; 0: it is current",
         lambda group: group.is_doubtful),
    )  # fmt: skip
    for name, text, value in values:
        samples = [
            Sample(value(each), {"cluster": each.cluster, "broker_set": each.name})
            for each in found.groups
        ]
        yield Family(f"rmq_controller_{name}", "gauge", text, samples)
