"""Broadcast groups over their starts: where their offsets are, and damage of these."""

import itertools
import os

import anyio
import pytest

from rmq.client import Client, Consumer, FileOffsets
from rmq.core.errors import ConfigError

numbers = itertools.count()


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def topic(broker, loop):
    name = f"broadcast-{loop.name}-{next(numbers)}"
    broker.create_topic(name, 2)
    return name


def send(broker, topic, *bodies):
    for number, body in enumerate(bodies):
        broker.send(topic, body, queue_id=number % 2)


@pytest.fixture
def run(broker, loop, topic):
    """Start a broadcast consumer, take `count` messages, and end it; their bodies."""

    def start(count, start="first", during=None, **options):
        async def scenario():
            found = []
            async with Consumer(
                broker.name_server, f"g-{topic}", topic, broadcast=True, start=start,
                **options,
            ) as it:  # fmt: skip
                if during is not None:
                    await during(it)
                with anyio.move_on_after(5 if count else 0.1):
                    while len(found) < max(count, 1):
                        found.append((await anext(it)).body)
            return sorted(found)

        return loop(scenario)

    return start


def path_of(home, topic):
    return home / ".rocketmq_offsets" / "DEFAULT" / f"g-{topic}" / "offsets.json"


def test_a_new_start_goes_on_where_the_last_one_ended(broker, topic, run, home):
    send(broker, topic, b"1", b"2", b"3")
    assert run(3) == [b"1", b"2", b"3"]
    send(broker, topic, b"4", b"5")
    assert run(2) == [b"4", b"5"]
    assert run(0) == []
    assert [each.name for each in (home / ".rocketmq_offsets").iterdir()] == ["DEFAULT"]


def test_no_message_of_a_pause_is_missed(broker, topic, run):
    """Also in a queue from which the first start got nothing."""
    send(broker, topic, b"before")
    assert run(0, start="last") == []
    send(broker, topic, b"1", b"2")
    assert run(2, start="last") == [b"1", b"2"]


def test_a_client_id_names_the_folder(broker, topic, loop, home):
    async def scenario():
        client = Client(broker.name_server, client_id="one")
        async with client, Consumer(client, "g", topic, broadcast=True):
            pass

    loop(scenario)
    assert (home / ".rocketmq_offsets/one/g/offsets.json").exists()


def test_two_consumers_do_not_share_a_file(topic, run, home):
    other = FileOffsets(path_of(home, topic))
    other.lock()
    with pytest.raises(ConfigError, match=r"another consumer of .*client_id="):
        run(0)
    other.unlock()
    assert run(0) == []
    assert run(0, offsets=FileOffsets(home / "elsewhere")) == []


NO_NUMBER = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"x"}}'


@pytest.mark.parametrize(
    "damage",
    [b"", bytes(100), b'{"offsetTable":{{"bro', b"\xff" * 9, b"[]", NO_NUMBER],
)
def test_a_damaged_file_has_a_backup(broker, topic, run, home, damage, caplog):
    send(broker, topic, b"1", b"2")
    assert run(2) == [b"1", b"2"]
    send(broker, topic, b"3")
    assert run(1) == [b"3"]
    path = path_of(home, topic)
    path.write_bytes(damage)
    send(broker, topic, b"4", b"5")
    assert set(run(3)) == {b"3", b"4", b"5"}
    assert str(path) in caplog.text
    backup = path.with_name("offsets.json.bak")
    for each in (path, backup):
        each.write_bytes(damage)
    assert len(run(5)) == 5


def test_a_home_that_cannot_be_written_is_a_warning(broker, topic, run, home, caplog):
    (home / ".rocketmq_offsets").write_text("no folder")
    send(broker, topic, b"1", b"2")
    assert run(2, commit_interval_s=0.01) == [b"1", b"2"]
    assert "are not saved" in caplog.text
    assert str(home) in caplog.text
    assert run(2) == [b"1", b"2"]


def test_no_home_is_one_sentence(topic, run, monkeypatch):
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(ConfigError, match="offsets=FileOffsets"):
        run(0)


@pytest.mark.parametrize("queues", [4, 6])
def test_queues_that_appear_later_are_read_from_their_first_message(
    broker, topic, run, queues
):
    send(broker, topic, b"before", b"before")

    async def grow(consumer):
        await anyio.to_thread.run_sync(broker.create_topic, topic, queues)
        for queue_id in range(queues):
            await anyio.to_thread.run_sync(
                lambda number=queue_id: broker.send(
                    topic, b"%d" % number, queue_id=number
                )
            )
        while len((await consumer.client.route(topic)).readable) < queues:
            await anyio.sleep(0.1)
            await consumer.client.refresh(topic)
        consumer.rebalance.trigger()

    wanted = [b"%d" % number for number in range(queues)]
    assert run(queues, start="last", during=grow) == wanted
    assert run(0, start="last") == []


def test_a_topic_that_appears_later_is_read_from_its_first_message(
    broker, loop, run, topic
):
    late = f"{topic}-late"

    async def scenario():
        async with Consumer(
            broker.name_server, "late", late, broadcast=True, start="last"
        ) as it:
            await anyio.to_thread.run_sync(broker.create_topic, late, 2)
            await anyio.to_thread.run_sync(broker.send, late, b"first")
            it.rebalance.trigger()
            return (await anext(it)).body

    assert loop(scenario) == b"first"
