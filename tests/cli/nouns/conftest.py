"""A node, and functions that call `rmq` with its name server."""

import json

import pytest

from rmq.testing import running_node


@pytest.fixture
async def node(tmp_path):
    async with running_node(tmp_path / "store") as running:
        yield running


@pytest.fixture
def rmq(node, command):
    """Return a function that runs a command; the result has exit code and output."""

    async def call(*words, stdin=None):
        where = "-n", node.name_servers[0]
        return await command(*words, *where, stdin=stdin)

    return call


@pytest.fixture
def shown(rmq):
    """Return a function that runs a command with --json, and reads its output."""

    async def call(*words):
        result = await rmq(*words, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    return call
