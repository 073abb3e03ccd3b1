"""Addresses of IPv6, with and without brackets, at every door of the tools."""

import socket

import pytest

from rmq.testing import running_node


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")


@pytest.fixture
async def port(tmp_path):
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as found:
        free = found.getsockname()[1]
    settings = {
        "bindAddress": "::1", "listenPort": str(free),
        "rmq.advertise": f"[::1]:{free}",
    }  # fmt: skip
    async with running_node(tmp_path / "store", settings) as node:
        yield node.name_servers[0].rpartition(":")[2]


@pytest.mark.parametrize("form", ["[::1]:{}", "::1:{}", "[0:0:0:0:0:0:0:1]:{}"])
async def test_tools_and_clients_take_both_forms(command, port, form):
    where = "-n", form.format(port)
    for words in (
        ("send", "T", "x"), ("consume", "T", "-e", "--from", "first"),
        ("admin", "topicList"), ("top", "--once"), ("doctor",),
    ):  # fmt: skip
        result = await command(*words, *where)
        assert result.exit_code == 0, (words, result.output)


async def test_brackets_in_the_address_of_a_broker(command, port):
    where = "-n", f"[::1]:{port}"
    result = await command("admin", "clusterList", *where, "--json")
    address = result.stdout.partition("[::1]:")[2].partition('"')[0]
    result = await command("admin", "brokerStatus", "-b", f"[::1]:{address}", *where)
    assert result.exit_code == 0, result.output
