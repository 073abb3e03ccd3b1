"""`rmq bench` against a broker in the same process."""

import re

import pytest
import trio
from click.testing import CliRunner

from rmq.cli import main
from rmq.testing import running_node


@pytest.fixture
async def bench(tmp_path):
    """Return the node and a function that runs the command against it."""
    async with running_node(tmp_path / "store") as node:

        async def call(*arguments, namesrv=node.name_servers[0]):
            line = ["bench", "-n", namesrv, *map(str, arguments)]
            return await trio.to_thread.run_sync(lambda: CliRunner().invoke(main, line))

        yield node, call


@pytest.mark.parametrize(("connections", "window", "size"), [(1, 1, 1), (3, 8, 70_000)])
async def test_as_many_messages_as_wanted_are_stored(bench, connections, window, size):
    node, call = bench
    result = await call(
        "--messages", 40, "-c", connections, "-w", window, "-s", size, "-t", "Wanted"
    )
    assert result.exit_code == 0, result.output
    assert re.search(r"^40 messages in ", result.stdout, re.MULTILINE)
    assert re.search(r"p50 [\d.]+ ms, p99 [\d.]+ ms, p99.9 ", result.stdout)
    store = node.broker.context.store
    ends = [store.reads.max_offset("Wanted", queue) for queue in range(8)]
    assert sum(ends) == 40
    assert sum(map(bool, ends)) == connections
    assert store.log.end_offset > 40 * size


async def test_the_time_ends_it(bench):
    _, call = bench
    with trio.fail_after(20):
        result = await call("--seconds", 0.1, "-c", 1, "-w", 1)
    assert result.exit_code == 0, result.output


async def test_refusals_are_counted_with_their_reason(bench):
    _, call = bench
    result = await call("--messages", 3, "-t", "a b")
    assert result.exit_code == 5
    assert "0 messages" in result.stdout
    assert re.search(r"refused 3 times: code \d+: .*illegal", result.stderr)


async def test_nobody_there_is_said_in_a_sentence(bench):
    _, call = bench
    result = await call(namesrv="127.0.0.1:1")
    assert result.exit_code == 3
    assert "127.0.0.1:1 refuses the connection" in result.stderr
