"""A message with a broken body, or a damaged record, stops none of its readers."""

import itertools

import pytest
from click.testing import CliRunner

from rmq._fastpath.client.messages import decode_messages
from rmq.cli import main
from rmq.client import Consumer, blocking, popper, puller
from rmq.protocol.records import decode_stored
from rmq.testing.threads import send_request
from tests.broken_bodies import BROKEN, PLAIN, WHOLE

numbers = itertools.count()


@pytest.fixture(scope="module")
def topic(broker):
    """A topic of one queue: broken bodies first, in the middle and last."""
    broker.create_topic("broken", 1)
    kinds = [each for each in BROKEN.values() if each[1]]
    middle = len(kinds) // 2
    for flag, body in (
        *kinds[:middle], (0, b"one"), *WHOLE.values(), (0, b"two"), *kinds[middle:],
        (0, b"three"), kinds[0],
    ):  # fmt: skip
        request = send_request("broken", body, {}, 0, 0)
        request.ext_fields["sysFlag"] = str(flag)
        assert broker.request(request).code == 0
    return "broken"


@pytest.fixture
def wanted(packages):
    """The bodies as a consumer with or without the packages gets them."""
    kinds = [body for _, body in BROKEN.values() if body]
    whole = [
        PLAIN if packages or name.startswith("zlib") else body
        for name, (_, body) in WHOLE.items()
    ]
    middle = len(kinds) // 2
    return [
        *kinds[:middle], b"one", *whole, b"two", *kinds[middle:], b"three", kinds[0],
    ]  # fmt: skip


def group():
    return f"broken-{next(numbers)}"


@pytest.mark.parametrize("mode", [{}, {"mode": "pop"}], ids=["pull", "pop"])
def test_a_consumer_gets_all_messages(broker, loop, topic, wanted, mode):
    async def scenario():
        async with Consumer(
            broker.name_server, group(), topic, start="first", **mode
        ) as it:
            return [(await anext(it)).body for _ in wanted]

    found = loop(scenario)
    assert sorted(found) == sorted(wanted)
    assert mode or found == wanted


def test_a_blocking_consumer_gets_all_messages(broker, topic, wanted):
    with blocking.Consumer(broker.name_server, group(), topic, start="first") as it:
        assert [next(it).body for _ in wanted] == wanted


def test_rmq_consume_shows_all_messages(broker, topic, wanted):
    words = ["consume", "-n", broker.name_server, topic, "--from", "first", "-e"]
    result = CliRunner().invoke(main, [*words, "--json"])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == len(wanted)


def damage_at(offset):
    """Return a decoder of answers in which the record of an offset is damaged."""

    def decode(data, *arguments, **options):
        damaged, at = bytearray(data), 0
        for record in decode_stored(data):
            damaged[at + 4] ^= 0xFF * (record.queue_offset == offset)
            at += record.size
        return decode_messages(bytes(damaged), *arguments, **options)

    return decode


@pytest.mark.parametrize("offset", [0, 20, 29])
@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_a_damaged_record_is_left_out(broker, loop, offset, mode, monkeypatch, caplog):
    topic = f"damaged-{mode}-{offset}-{loop.name}"
    broker.create_topic(topic, 1)
    for number in range(30):
        broker.send(topic, b"%d" % number)
    for module in (puller, popper):
        monkeypatch.setattr(module, "decode_messages", damage_at(offset))
    wanted = {b"%d" % number for number in range(30) if number != offset}

    async def scenario():
        found = []
        async with Consumer(
            broker.name_server, group(), topic, start="first",
            mode=mode, invisible_s=1,
        ) as it:  # fmt: skip
            while not wanted <= set(found):
                found.append((await anext(it)).body)
            return found

    found = loop(scenario)
    assert b"%d" % offset not in found[:offset]
    if mode == "pull":
        assert found == sorted(wanted, key=int)
        assert f"the message at offset {offset} is skipped" in caplog.text
    assert "is skipped" in caplog.text
