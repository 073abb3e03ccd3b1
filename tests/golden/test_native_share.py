"""The share of real clients' sends and pulls that compiled handlers serve.

The frames of each recording go to a node again and again: its plain sends, its batches,
and those of its pulls that found messages.  A client's other requests are not compiled;
they and the first message of each queue, from which the handlers learn it, came before.
`pytest -s` prints a table.
"""

from collections import Counter
from contextlib import AsyncExitStack

import pytest
import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import decode_send_header
from rmq.protocol.properties import decode_properties
from rmq.protocol.topics import RETRY_PREFIX
from rmq.testing import running_node
from tests.golden.conversations import (
    SENDS,
    WITH_SQL,
    Connection,
    Link,
    Row,
    address_of,
    exchanges,
    not_held,
    prepare,
    read,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROUNDS = 200
LEAST = 0.99
CLIENTS = ("cpp", "go", "java49", "java49bin", "java55", "java55bin", "node")
KINDS = ("send", "batch", "pull")
WITHOUT = {"batch": ("cpp", "go", "node")}
"""Clients whose recordings have none."""
INNER_BATCHES = "java55-innerbatch.jsonl"
"""Python serves topics whose queues count batches."""

PULL = RequestCode.PULL_MESSAGE
TYPE = "expressionType"
"""Of a filter; SQL is for Python."""
Share = Counter[tuple[str, str]]


async def play(name: str, rows: list[Row], folder, share: Share) -> None:
    """Have one conversation, then its plain sends and finding pulls for ROUNDS."""
    answers = exchanges(rows)
    async with running_node(folder, WITH_SQL) as node, AsyncExitStack() as stack:
        links: dict[Connection, Link] = {}
        for connection in {("broker", -1), *(row.connection for row in rows)}:
            stream = await trio.open_tcp_stream(*address_of(node, connection[0]))
            links[connection] = Link(await stack.enter_async_context(stream))
        await prepare(node, links["broker", -1], rows, answers)

        async def ask(row: Row) -> Command | None:
            request = not_held(row.command, None)
            await links[row.connection].send(request)
            return await links[row.connection].answer(request.opaque)

        triggers = node.broker.context.put.triggers
        sends: list[Row] = []
        batches: list[Row] = []
        pulls: list[Row] = []
        for place, row in enumerate(rows):
            code = row.command.code
            if code == RequestCode.HEART_BEAT and row.is_from_client:
                await ask(row)
            elif code in (*SENDS, PULL) and place in answers:
                answer = await ask(row)
                if answer is None or answer.code != 0 or answers[place].command.code:
                    continue  # nothing found by the pull, a timer that is off
                if code == PULL and row.command.ext_fields.get(TYPE) != "SQL92":
                    pulls.append(row)
                elif code in SENDS and is_plain(row.command, triggers):
                    (batches if is_batch(row.command) else sends).append(row)
        for kind, requests in zip(KINDS, (sends, batches, pulls), strict=True):
            before = served(node)
            for _ in range(ROUNDS):
                for row in requests:
                    answer = await ask(row)
                    assert answer is not None
                    assert answer.code == 0, (name, row.command, answer.remark)
            share[kind, "asked"] += ROUNDS * len(requests)
            share[kind, "served"] += served(node) - before


def is_plain(request: Command, triggers: set[str]) -> bool:
    """Whether nothing but storing is to be done with a message."""
    header = decode_send_header(request.code, request.ext_fields)
    properties = decode_properties(header.properties or "")
    is_retry = header.topic.startswith(RETRY_PREFIX)
    return not is_retry and triggers.isdisjoint(properties)


def is_batch(request: Command) -> bool:
    """Whether the body has several messages."""
    header = decode_send_header(request.code, request.ext_fields)
    return bool(header.batch) or request.code == RequestCode.SEND_BATCH_MESSAGE


def served(node) -> int:
    counts = node.broker.context.native_counts().values()
    return sum(count for count, _ in counts)


async def test_real_clients_are_served_by_compiled_handlers(golden, tmp_path):
    shares = {client: Share() for client in CLIENTS}
    for path in sorted((golden / "frames").glob("*.jsonl")):
        client = path.name.partition("-")[0]
        if client in shares and path.name != INNER_BATCHES:
            for run, rows in read(path).items():
                folder = tmp_path / f"{path.name}-{run}"
                await play(path.name, rows, folder, shares[client])
    print()  # noqa: T201 - the report
    for client, share in shares.items():
        line = "  ".join(
            f"{kind} {share[kind, 'served']} of {share[kind, 'asked']}"
            for kind in KINDS
        )
        print(f"{client:10} {line}")  # noqa: T201 - the report
        for kind in KINDS:
            assert share[kind, "asked"] or client in WITHOUT.get(kind, ()), client
            assert share[kind, "served"] >= LEAST * share[kind, "asked"], (client, kind)
