"""/healthz, /readyz and /metrics of a container: its brokers' pages as one.

The page /healthz answers while the container watches its brokers. The page /readyz
answers 200 if every broker is ready, or 503 with one line for each reason. The page
/metrics has the families of all brokers, whose samples differ by the label node_id, and
two of the container.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from http import HTTPStatus

import h11
import trio

from rmq.container.child import BrokerIdentity, Child
from rmq.core.threads import in_thread
from rmq.http.exchange import fetch
from rmq.http.server import Page, Pages
from rmq.observe.metrics.exposition import CONTENT_TYPE, Family, Sample, expose

Children = Mapping[BrokerIdentity, Child]

PAGE_LIMIT = 64 << 20
"""Maximum bytes of a broker's page: a million samples."""

TIMEOUT_S = 5.0
"""Time limit of a broker's answer; a slower broker counts as failed."""

SILENT = f"the broker does not answer within {TIMEOUT_S:.0f} s"


def container_pages(children: Children, is_stopping: Callable[[], bool]) -> Pages:
    """Return the pages by path; `children` are the brokers."""
    return {
        "/metrics": partial(_metrics, children),
        "/healthz": _health,
        "/readyz": partial(_readiness, children, is_stopping),
    }


async def _health() -> Page:
    await trio.lowlevel.checkpoint()
    return Page(b"alive\n")


async def _readiness(children: Children, is_stopping: Callable[[], bool]) -> Page:
    reasons = ["a stop is in progress"] if is_stopping() else []
    for child, status, body in await _fetch_all(children, "/readyz"):
        if status != HTTPStatus.OK:
            lines = body.decode(errors="replace").splitlines()
            reasons += [f"broker {child.identity.name}: {line}" for line in lines]
    if reasons:
        text = "".join(f"{reason}\n" for reason in reasons)
        return Page(text.encode(), HTTPStatus.SERVICE_UNAVAILABLE)
    return Page(b"ready\n")


async def _metrics(children: Children) -> Page:
    found = await _fetch_all(children, "/metrics")
    texts = [
        body.decode(errors="replace")
        for _, status, body in found
        if status == HTTPStatus.OK
    ]
    own = await expose(families(children), {"node_type": "container"})
    merged = await in_thread(merge, [*texts, own.decode()])
    return Page(merged.encode(), content_type=CONTENT_TYPE)


def families(children: Children) -> Iterator[Family]:
    """Yield the container's own families."""
    labelled = [
        (child, {"node_id": child.identity.name}) for child in children.values()
    ]
    yield Family(
        "rmq_container_broker_up",
        "gauge",
        "1: the broker serves requests; 0: it does not.",
        [Sample(bool(child.address), labels) for child, labels in labelled],
    )
    yield Family(
        "rmq_container_broker_starts",
        "counter",
        "How often the container started the broker's process.",
        [Sample(child.starts, labels) for child, labels in labelled],
    )


def merge(texts: Iterable[str]) -> str:
    """Join the metrics of several processes; each family has its head once."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if not line.startswith("# "):
                samples[name].append(line)
                continue
            _, kind, name, _ = line.split(" ", 3)
            if kind == "HELP" and name not in heads:
                heads[name], samples[name] = [], []
            if len(heads[name]) < 2 and not samples[name]:
                heads[name].append(line)
    parts = [line for name in heads for line in (*heads[name], *samples[name])]
    return "\n".join(parts) + "\n"


async def _fetch_all(children: Children, path: str) -> list[tuple[Child, int, bytes]]:
    """Fetch a page of every broker at once; 503 with a reason if one fails."""
    asked = list(children.values())
    answers: dict[int, tuple[int, bytes]] = {}

    async def fetch_one(number: int, child: Child) -> None:
        answers[number] = await _fetch_from(child, path)

    async with trio.open_nursery() as nursery:
        for number, child in enumerate(asked):
            nursery.start_soon(fetch_one, number, child)
    return [(child, *answers[number]) for number, child in enumerate(asked)]


async def _fetch_from(child: Child, path: str) -> tuple[int, bytes]:
    if not child.metrics_address:
        word = "starts" if child.is_running else "does not run"
        return HTTPStatus.SERVICE_UNAVAILABLE, f"it {word}: {child.last_line}".encode()
    with trio.move_on_after(TIMEOUT_S):
        try:
            return await fetch(child.metrics_address, path, PAGE_LIMIT)
        except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError) as error:
            return HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode()
    return HTTPStatus.SERVICE_UNAVAILABLE, SILENT.encode()
