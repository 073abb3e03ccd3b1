"""Java's client and `rmq.client` together: both directions, one group, one order."""

import time

import pytest

from . import wire
from .conftest import prepared
from .drivers import driving, eventually, send
from .messages import digests
from .processes import broker_arguments, serving
from .toolchains import Java, OldJava, Rmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = "broker-mixed"
QUEUES = 4
COUNT = 60


@pytest.fixture(scope="module", params=[Java, OldJava], ids=lambda kind: kind().name)
def java(request):
    return prepared(request.param())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broker")
    with serving(*broker_arguments(folder, f"brokerName={NAME}")) as running:
        yield running


@pytest.fixture
def topic(server, request):
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    wire.make_topic(server.address, name, QUEUES)
    return name


def pushing(client, home, server, topic, **options):
    texts = [f"{name}={value}" for name, value in {"group": topic, **options}.items()]
    return driving(client, home, "push", server.namesrv, topic, 0, *texts)


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
            sender, tmp_path, server.namesrv, topic, COUNT,
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
            send(Rmq(), tmp_path, server.namesrv, topic, COUNT, first=first)
            numbers = set(range(first, first + COUNT))
            eventually(
                lambda: numbers <= {*one.numbers, *two.numbers},  # noqa: B023
                "a round consumed",
            )
            shares = [numbers & set(each.numbers) for each in (one, two)]
            if all(shares) and not shares[0] & shares[1]:
                break
            time.sleep(1)
        assert [len(each) for each in shares] == [COUNT // 2, COUNT // 2]
        one.kill()
        send(Rmq(), tmp_path, server.namesrv, topic, COUNT, first=5_000)
        later = set(range(5_000, 5_000 + COUNT))
        eventually(lambda: later <= set(two.numbers), "Python takes over")
        two.finish()
