"""Five unmodified clients against one broker process; messages compared by digest."""

import json
import time

import pytest

from rmq.protocol.codes import RequestCode as Code
from rmq.protocol.topics import pop_retry_topic
from tests.waiting import wait_until

from . import wire
from .conftest import needs
from .drivers import driving, send
from .messages import digest_of_stored, digests
from .processes import broker_arguments, free_port, serving

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = "broker-interop"
QUEUES = 4
COUNT = 120
LARGE_SIZE = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One broker with its own name server, and what a user would call defaults."""
    folder = tmp_path_factory.mktemp("broker")
    with serving(*broker_arguments(folder, f"brokerName={NAME}")) as running:
        yield running
        assert running.stop() == 0


@pytest.fixture
def topic(client, request):
    """A name that nobody used before."""
    text = request.node.name.removeprefix("test_")
    return "".join(each if each.isalnum() else "-" for each in text)


@pytest.fixture
def made_topic(server, topic):
    """A topic that exists with QUEUES queues."""
    wire.make_topic(server.address, topic, QUEUES)
    return topic


def stored_digests(server, topic):
    (queues,) = wire.route(server.namesrv, topic)["queueDatas"]
    records = wire.pull(server.address, topic, queues=queues["readQueueNums"])
    return sorted(digest_of_stored(record) for record in records)


def pushing(client, home, server, topic, **options):
    options = {"group": topic, **options}
    texts = [f"{name}={value}" for name, value in options.items()]
    return driving(client, home, "push", server.namesrv, topic, 0, *texts)


def test_send_to_a_new_topic(client, server, topic, tmp_path):
    needs(client, "create")
    assert wire.route(server.namesrv, topic) is None
    send(client, tmp_path, server.namesrv, topic, COUNT)
    route = wire.route(server.namesrv, topic)
    assert [queue["writeQueueNums"] > 0 for queue in route["queueDatas"]] == [True]
    assert stored_digests(server, topic) == digests(range(COUNT))


@pytest.mark.parametrize("mode", ["sync", "async", "oneway", "batch"])
def test_send(client, server, made_topic, tmp_path, mode):
    if mode != "sync":
        needs(client, mode)
    send(client, tmp_path, server.namesrv, made_topic, COUNT, mode=mode)
    wait_until(
        lambda: stored_digests(server, made_topic) == digests(range(COUNT)),
        "all messages stored",
        5,
    )


def test_keys_tags_properties_unicode(client, server, made_topic, tmp_path):
    send(client, tmp_path, server.namesrv, made_topic, 3)
    records = wire.pull(server.address, made_topic, queues=QUEUES)
    found = sorted(
        [record.properties[name] for name in ("number", "TAGS", "KEYS", "name")]
        for record in records
    )
    assert [row[0] for row in found] == ["0", "1", "2"]
    for number, tags, keys, name in found:
        assert tags == f"Tag{number}"
        assert keys.strip() == f"Key{number}"
        assert name == "日本 é 😀"


def test_one_mebibyte(client, server, made_topic, tmp_path):
    with pushing(client, tmp_path / "in", server, made_topic) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, made_topic, 3, size=LARGE_SIZE)
        consumer.wait_received(3)
        consumer.finish()
    assert stored_digests(server, made_topic) == digests(range(3), LARGE_SIZE)
    assert sorted(set(consumer.digests)) == digests(range(3), LARGE_SIZE)


def test_push_concurrent(client, server, made_topic, tmp_path):
    with pushing(client, tmp_path / "in", server, made_topic) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, made_topic, COUNT)
        consumer.wait_received(COUNT)
        consumer.finish()
    assert sorted(consumer.digests) == digests(range(COUNT))
    wait_until(lambda: not wire.members(server.address, made_topic), "unregistered", 5)


def test_push_by_pop(client, server, made_topic, tmp_path):
    """Each message fails once, and comes again after its invisible time."""
    needs(client, "pop")
    mode = {"topic": made_topic, "consumerGroup": made_topic, "mode": "POP"}
    body = json.dumps(mode | {"popShareQueueNum": 0}).encode()
    answer = wire.call(server.address, Code.SET_MESSAGE_REQUEST_MODE, body=body)
    assert answer.code == 0, answer.remark
    options = {"pop": "true", "fail": 1}
    with pushing(client, tmp_path / "in", server, made_topic, **options) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, made_topic, COUNT)
        consumer.wait(
            lambda: len(consumer.of("received")) >= 2 * COUNT, "each comes twice", 60
        )
        consumer.finish()
    received = consumer.of("received")
    for times in (0, 1):
        found = [each["digest"] for each in received if each["times"] == times]
        assert sorted(found) == digests(range(COUNT))
    assert min(each["age"] for each in received if each["times"]) >= 1_000
    retries = {"topic": pop_retry_topic(made_topic, made_topic), "queueId": 0}
    stored = wire.call(server.address, Code.GET_MAX_OFFSET, retries)
    assert int(stored.ext_fields["offset"]) == COUNT, "it was popped, not pulled"


def test_push_orderly(client, server, made_topic, tmp_path):
    needs(client, "orderly")
    queues = [
        {"topic": made_topic, "brokerName": NAME, "queueId": n} for n in range(QUEUES)
    ]
    with pushing(client, tmp_path / "in", server, made_topic, order="true") as consumer:
        consumer.wait_ready()
        send(
            client, tmp_path, server.namesrv, made_topic, COUNT,
            mode="orderly", broker=NAME, queues=QUEUES,
        )  # fmt: skip
        consumer.wait_received(COUNT)
        assert wire.lock(server.address, made_topic, "stranger", queues) == []
        consumer.finish()
    assert sorted(consumer.digests) == digests(range(COUNT))
    for queue in range(QUEUES):
        numbers = [r["number"] for r in consumer.of("received") if r["queue"] == queue]
        assert len(numbers) == COUNT // QUEUES
        assert numbers == sorted(numbers)


def test_tag_filter_at_the_broker(client, server, made_topic, tmp_path):
    with pushing(client, tmp_path / "in", server, made_topic, tags="Tag1") as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, made_topic, COUNT)
        consumer.wait_received(COUNT // 3)
        by_group = wire.pull(
            server.address, made_topic, queues=QUEUES, group=made_topic,
            flag=wire.BY_HEARTBEAT,
        )  # fmt: skip
        consumer.finish()
    expected = digests(range(1, COUNT, 3))
    by_tag = wire.pull(server.address, made_topic, queues=QUEUES, tags="Tag1")
    assert sorted(consumer.digests) == expected
    assert sorted(map(digest_of_stored, by_group)) == expected
    assert sorted(map(digest_of_stored, by_tag)) == expected


def test_pull_with_seek(client, server, made_topic, tmp_path):
    needs(client, "pull")
    send(
        client, tmp_path, server.namesrv, made_topic, COUNT,
        mode="orderly", broker=NAME, queues=QUEUES,
    )  # fmt: skip
    skipped = 10
    expected = sorted(
        digest_of_stored(record)
        for record in wire.pull(server.address, made_topic, queues=QUEUES)
        if record.queue_offset >= skipped
    )
    with driving(
        client, tmp_path / "in", "pull", server.namesrv, made_topic, len(expected),
        f"group={made_topic}", f"broker={NAME}", f"queues={QUEUES}",
        f"offset={skipped}", f"total={COUNT}",
    ) as consumer:  # fmt: skip
        consumer.finish()
    assert len(expected) == COUNT - skipped * QUEUES
    assert sorted(consumer.digests) == expected


def test_offsets_survive_restarts(client, topic, tmp_path):
    """Of the client, and of the broker: what was consumed is not delivered again."""
    arguments = broker_arguments(
        tmp_path / "store", f"brokerName={NAME}", f"listenPort={free_port()}",
        f"rmq.namesrv.listenPort={free_port()}",
    )  # fmt: skip
    step = 40

    def consume_next(server, first):
        with pushing(client, tmp_path / f"in{first}", server, topic) as consumer:
            consumer.wait_ready()
            send(client, tmp_path, server.namesrv, topic, step, first=first)
            consumer.wait_received(step)
            wait_until(
                lambda: (
                    wire.committed(server.address, topic, topic, QUEUES) == first + step
                ),
                "offsets committed",
                15,
            )
            consumer.finish()
        assert sorted(consumer.digests) == digests(range(first, first + step))

    with serving(*arguments) as server:
        wire.make_topic(server.address, topic, QUEUES)
        consume_next(server, 0)
        consume_next(server, step)
        assert server.stop() == 0
    with serving(*arguments) as server:
        consume_next(server, 2 * step)
        assert server.stop() == 0


def test_two_consumers_share_and_take_over(client, server, made_topic, tmp_path):
    send_round = rounds(client, server, made_topic, tmp_path)
    with (
        pushing(client, tmp_path / "a", server, made_topic, instance="a") as first,
        pushing(client, tmp_path / "b", server, made_topic, instance="b") as second,
    ):
        first.wait_ready()
        second.wait_ready()
        for _ in range(10):
            numbers = send_round()
            wait_until(
                lambda: numbers <= {*first.numbers, *second.numbers},  # noqa: B023
                "a round consumed",
            )
            time.sleep(1)
            shares = [numbers & set(each.numbers) for each in (first, second)]
            if all(shares) and not shares[0] & shares[1]:
                break
        assert all(shares), "one of two got nothing"
        assert not shares[0] & shares[1], "some came twice"
        first.kill()
        numbers = send_round()
        wait_until(lambda: numbers <= set(second.numbers), "the other took over")
        assert len(wire.members(server.address, made_topic)) == 1
        second.finish()


def rounds(client, server, topic, home):
    """A function that sends twenty more messages each time; their numbers."""
    sent = 0

    def send_round():
        nonlocal sent
        send(client, home, server.namesrv, topic, 20, first=sent)
        sent += 20
        return set(range(sent - 20, sent))

    return send_round


def test_broadcast(client, server, made_topic, tmp_path):
    options = {"model": "BROADCASTING"}
    with (
        pushing(
            client, tmp_path / "a", server, made_topic, instance="a", **options
        ) as first,
        pushing(
            client, tmp_path / "b", server, made_topic, instance="b", **options
        ) as second,
    ):
        first.wait_ready()
        second.wait_ready()
        time.sleep(3)
        send(client, tmp_path, server.namesrv, made_topic, COUNT)
        for each in (first, second):
            each.wait_received(COUNT)
            each.finish()
            assert sorted(each.digests) == digests(range(COUNT))


def test_vip_port(client, topic, tmp_path):
    """4.x clients may send to the port two below the main one."""
    needs(client, "vip")
    settings = (f"brokerName={NAME}", f"listenPort={free_port()}")
    with serving(*broker_arguments(tmp_path / "store", *settings)) as server:
        wire.make_topic(server.address, topic, QUEUES)
        with pushing(client, tmp_path / "in", server, topic, vip="true") as consumer:
            consumer.wait_ready()
            send(client, tmp_path, server.namesrv, topic, COUNT, vip="true")
            consumer.wait_received(COUNT)
            consumer.finish()
        assert sorted(consumer.digests) == digests(range(COUNT))


def test_binary_header(client, server, made_topic, tmp_path):
    needs(client, "binary")
    with pushing(
        client, tmp_path / "in", server, made_topic, binary="true"
    ) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, made_topic, COUNT, binary="true")
        consumer.wait_received(COUNT)
        consumer.finish()
    assert sorted(consumer.digests) == digests(range(COUNT))


def test_heartbeat_v2(client, server, made_topic, tmp_path):
    """Heartbeats without subscriptions keep the member and what it subscribes to."""
    needs(client, "v2")
    options = {"v2": "true", "heartbeat": 500, "tags": "Tag1"}
    with pushing(client, tmp_path / "in", server, made_topic, **options) as consumer:
        consumer.wait_ready()
        time.sleep(3)
        send(client, tmp_path, server.namesrv, made_topic, COUNT)
        consumer.wait_received(COUNT // 3)
        assert len(wire.members(server.address, made_topic)) == 1
        records = wire.pull(
            server.address, made_topic, queues=QUEUES, group=made_topic,
            flag=wire.BY_HEARTBEAT,
        )  # fmt: skip
        consumer.finish()
    assert sorted(map(digest_of_stored, records)) == digests(range(1, COUNT, 3))
    assert sorted(consumer.digests) == digests(range(1, COUNT, 3))


def test_namespace(client, server, topic, tmp_path):
    needs(client, "namespace")
    stored = f"NS%{topic}"
    wire.make_topic(server.address, stored, QUEUES)
    with pushing(client, tmp_path / "in", server, topic, namespace="NS") as consumer:
        consumer.wait_ready()
        send(client, tmp_path, server.namesrv, topic, COUNT, namespace="NS")
        consumer.wait_received(COUNT)
        assert len(wire.members(server.address, f"NS%{topic}")) == 1
        consumer.finish()
    assert stored_digests(server, stored) == digests(range(COUNT))
    assert sorted(consumer.digests) == digests(range(COUNT))
