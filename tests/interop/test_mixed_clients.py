"""Java's client and `rmq.client` together: both directions, one group, one order.

Each with rmq's broker and with Java's of the client's line.
"""

import time

import pytest

from tests.waiting import wait_until

from .conftest import prepared
from .drivers import driving, send
from .messages import digests
from .parity import SETTINGS, broker_of, servers_of
from .toolchains import Java, OldJava, Rmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = SETTINGS["brokerName"]
QUEUES = 4
COUNT = 60


PAIRS = [
    ("rmq", Java),
    ("rmq", OldJava),
    ("Java 5.5.0", Java),
    ("Java 4.9.7", OldJava),
]


@pytest.fixture(
    scope="module", params=PAIRS, ids=lambda each: f"{each[1]().name} at {each[0]}"
)
def pair(request, tmp_path_factory):
    name, kind = request.param
    java = prepared(kind())
    if name != "rmq":
        prepared(servers_of(name))
    with broker_of(name, tmp_path_factory.mktemp("broker")) as server:
        yield java, server


@pytest.fixture(scope="module")
def java(pair):
    return pair[0]


@pytest.fixture(scope="module")
def server(pair):
    return pair[1]


@pytest.fixture
def topic(server, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    server.create_topic(name, QUEUES)
    return name


def pushing(client, home, server, topic, **options):
    texts = [f"{name}={value}" for name, value in {"group": topic, **options}.items()]
    return driving(client, home, "push", server.name_server, topic, 0, *texts)


@pytest.mark.parametrize("is_reverse", [False, True], ids=["to rmq", "to Java"])
@pytest.mark.parametrize("mode", ["sync", "batch", "orderly"])
def test_one_sends_and_the_other_consumes(
    java, server, topic, tmp_path, is_reverse, mode
):
    sender, consumer = (Rmq(), java) if is_reverse else (java, Rmq())
    order = "true" if mode == "orderly" else "false"
    with pushing(consumer, tmp_path / "in", server, topic, order=order) as listening:
        listening.wait_ready()
        send(
            sender, tmp_path, server.name_server, topic, COUNT,
            mode=mode, queues=QUEUES, broker=NAME,
        )  # fmt: skip
        listening.wait_received(COUNT)
        listening.finish()
    assert sorted(listening.digests) == digests(range(COUNT))


def test_members_of_one_group(java, server, topic, tmp_path):
    with (
        pushing(java, tmp_path / "java", server, topic, instance="j") as one,
        pushing(Rmq(), tmp_path / "rmq", server, topic, instance="p") as two,
    ):
        one.wait_ready()
        two.wait_ready()
        for first in range(0, 20 * COUNT, COUNT):
            send(Rmq(), tmp_path, server.name_server, topic, COUNT, first=first)
            numbers = set(range(first, first + COUNT))
            wait_until(
                lambda: numbers <= {*one.numbers, *two.numbers},  # noqa: B023
                "a round consumed",
            )
            shares = [numbers & set(each.numbers) for each in (one, two)]
            if all(shares) and not shares[0] & shares[1]:
                break
            time.sleep(1)
        assert [len(each) for each in shares] == [COUNT // 2, COUNT // 2]
        one.kill()
        send(Rmq(), tmp_path, server.name_server, topic, COUNT, first=5_000)
        later = set(range(5_000, 5_000 + COUNT))
        wait_until(lambda: later <= set(two.numbers), "Python takes over")
        two.finish()
