"""Delayed delivery: levels, order, time, restarts, and a store that refuses."""

import json

import pytest
import trio
from trio.testing import MockClock

from rmq.broker.arrivals import Arrivals
from rmq.broker.housekeeping import save_changes
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.durability import RefusalKind
from rmq.testing import TrioClock
from rmq_plugins.schedule.deliver import (
    BATCH,
    RETRY_MS,
    Deliveries,
)
from tests.plugins.conftest import bodies, records


@pytest.fixture
def deliveries(caller):
    return caller.find(Deliveries)


def send_delayed(caller, level, body=b"later", **more):
    return caller.send(
        body=body, properties=f"DELAY\x01{level}\x02TAGS\x01A\x02", **more
    )


def deliver(caller, level=1):
    return caller.find(Deliveries).deliver(level)


def test_a_delayed_message_is_put_aside(caller):
    answer = send_delayed(caller, 4, queueId=1)
    assert answer.code == 0
    assert answer.ext_fields["queueId"] == "1"
    assert bodies(caller, queue_id=1) == []
    (aside,) = records(caller, "SCHEDULE_TOPIC_XXXX", 3)
    properties = aside.properties
    assert properties["DELAY"] == "4"
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")


@pytest.mark.parametrize(("level", "queue"), [(18, 17), (19, 17), (10**9, 17)])
def test_levels_above_the_last_are_the_last(caller, level, queue):
    send_delayed(caller, level)
    (aside,) = records(caller, "SCHEDULE_TOPIC_XXXX", queue)
    assert aside.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", [0, -1, "+0", "-7"])
def test_no_level_is_no_delay(caller, level):
    send_delayed(caller, level)
    assert bodies(caller) == [b"later"]


@pytest.mark.parametrize("level", ["x", "1.5", "3.0", " 3", "1_0", "³", "9" * 11])
def test_a_text_that_is_no_level_is_refused(caller, level):
    """It was visible at once, without a word."""
    answer = send_delayed(caller, level)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "which is no level" in answer.remark
    assert bodies(caller) == []


def test_a_level_goes_before_a_time(caller):
    text = "DELAY\x011\x02TIMER_DELAY_MS\x015\x02TIMER_DELIVER_MS\x015\x02"
    assert caller.send(properties=text).code == 0
    (aside,) = records(caller, "SCHEDULE_TOPIC_XXXX", 0)
    assert not [name for name in aside.properties if name.startswith("TIMER")]


def test_delivery_is_never_early(caller, clock):
    send_delayed(caller, 1)
    clock.ms += 999
    assert deliver(caller) == 0
    assert bodies(caller) == []
    clock.ms += 1
    assert deliver(caller) == 1
    assert bodies(caller) == [b"later"]


def test_what_is_delivered_is_what_java_delivers(caller, clock):
    send_delayed(caller, 1, flag=9)
    clock.ms += 1_000
    deliver(caller)
    (aside,), (delivered,) = records(caller, "SCHEDULE_TOPIC_XXXX"), records(caller)
    for name in ("properties_text", "body", "flag", "sys_flag", "born_timestamp"):
        assert getattr(delivered, name) == getattr(aside, name)
    assert delivered.born_host == aside.born_host
    assert delivered.store_timestamp == clock.ms
    assert bodies_by_tag(caller, "A") == [b"later"]


def bodies_by_tag(caller, tag):
    answer = caller.pull(subscription=tag)
    return [record.body for record in decode_stored(answer.body)]


def test_order_within_a_level(caller, clock):
    expected = [str(n).encode() for n in range(100)]
    for body in expected:
        send_delayed(caller, 1, body)
    clock.ms += 1_000
    while deliver(caller):
        pass
    assert bodies(caller) == expected


def test_only_the_head_that_is_due(caller, clock):
    send_delayed(caller, 1, b"first")
    clock.ms += 500
    send_delayed(caller, 1, b"second")
    clock.ms += 500
    assert deliver(caller) == 1
    clock.ms += 500
    assert deliver(caller) == 1
    assert bodies(caller) == [b"first", b"second"]


def own_reads(caller):
    return caller.broker.store.statistics().own_read_messages


@pytest.mark.parametrize("size", [5, 200_000])
def test_each_message_is_read_once(caller, clock, size):
    """Messages that come due one by one were read about thirty times each."""
    for number in range(40):
        assert send_delayed(caller, 3, b"%d" % number * size).code == 0
        clock.ms += 200
    before = own_reads(caller)
    for _ in range(100):
        deliver(caller, 3)
        clock.ms += 200
    assert len(bodies(caller)) == 40
    assert own_reads(caller) - before <= 40 * (2 if size > 5 else 1)


def test_records_in_memory_end_with_a_change_of_the_offset(caller, clock, deliveries):
    """A slave that becomes master has the table of the old one."""
    for number in range(4):
        send_delayed(caller, 1, b"%d" % number)
        clock.ms += 100
    clock.ms += 600
    assert deliver(caller) == 1
    deliveries.offsets.set(1, 3)
    clock.ms += 1_000
    assert deliver(caller) == 1
    assert bodies(caller) == [b"0", b"3"]


def test_a_clock_that_was_set_back_does_not_hold_messages(caller, clock):
    send_delayed(caller, 1)
    clock.ms -= 86_400_000
    assert deliver(caller) == 1


def test_levels_of_the_user(make_caller, clock):
    caller = make_caller(store={"delay_levels": "2s 1d"})
    send_delayed(caller, 7)
    clock.ms += 86_399_999
    assert deliver(caller, 2) == 0
    clock.ms += 1
    assert deliver(caller, 2) == 1


def test_a_refused_message_is_tried_again(caller, clock, monkeypatch):
    send_delayed(caller, 1)
    clock.ms += 1_000
    deliveries = caller.find(Deliveries)
    caller.broker.store.durability.refuse(RefusalKind.DISK_FULL, "the disk is full")
    assert deliver(caller) == 0
    assert deliveries.offsets.get(1) == 0
    assert deliveries.due_ms[1] == clock.ms + RETRY_MS
    caller.broker.store.disk.update_refusal()
    assert deliver(caller) == 1
    assert bodies(caller) == [b"later"]


def test_a_retry_comes_to_its_group(caller, clock):
    caller.broker.groups.find("G")
    caller.send()
    (record,) = records(caller)
    fields = {"offset": record.physical_offset, "group": "G", "delayLevel": 1}
    assert caller.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
    clock.ms += 1_000
    assert deliver(caller) == 1
    (again,) = records(caller, "%RETRY%G")
    assert (again.body, again.reconsume_times) == (b"hello", 1)


def test_an_address_that_would_become_a_path_is_dropped(caller, clock, caplog):
    send_delayed(caller, 1, b"bad")
    send_delayed(caller, 1, b"good")
    (first, _) = records(caller, "SCHEDULE_TOPIC_XXXX")
    message = first.to_message()
    message.set_property("REAL_TOPIC", "../../x")
    caller.broker.put.append(message)
    clock.ms += 1_000
    assert deliver(caller) == 3
    assert bodies(caller) == [b"bad", b"good"]
    assert "../../x" in caplog.text


def test_progress_is_saved_in_java_s_form(caller, clock, deliveries):
    send_delayed(caller, 1)
    clock.ms += 1_000
    deliver(caller)
    deliveries.offsets.write(deliveries.offsets.snapshot())
    path = caller.broker.store.directory.config / "delayOffset.json"
    content = json.loads(path.read_text())
    assert content["offsetTable"] == {"1": 1}
    assert set(content["dataVersion"]) == {"counter", "stateVersion", "timestamp"}


def test_a_power_cut_takes_no_delivered_message_that_the_table_names(
    caller, clock, deliveries
):
    """Without SYNC_FLUSH the disk may lack what was delivered last."""
    send_delayed(caller, 1)
    clock.ms += 1_000
    assert deliver(caller) == 1
    store = caller.broker.store
    end = store.log.end_offset
    assert store.positions.durable.value < end
    deliveries.offsets.write(deliveries.offsets.snapshot())
    assert store.positions.durable.value == end


async def test_progress_is_not_saved_without_its_log(caller, clock, deliveries):
    send_delayed(caller, 1)
    clock.ms += 1_000
    deliver(caller)
    store = caller.broker.store
    store.durability.refuse(RefusalKind.FLUSH_FAILED, "the disk is gone")
    with pytest.raises(OSError, match="not saved before the log: the disk is gone"):
        await deliveries.offsets.save()
    assert not (store.directory.config / "delayOffset.json").exists()
    assert deliveries.offsets.is_dirty


def test_a_restart_goes_on_where_the_table_says(caller, clock, deliveries):
    for body in (b"a", b"b"):
        send_delayed(caller, 1, body)
        clock.ms += 1_000
        deliver(caller)
        if body == b"a":
            deliveries.offsets.write(deliveries.offsets.snapshot())
    again = Deliveries(caller.broker)
    again.offsets.load()
    again.find_pending()
    assert again.deliver(1) == 1
    assert bodies(caller) == [b"a", b"b", b"b"]


def test_what_a_start_finds_and_nobody_may_see_yet_is_delivered_later(
    make_caller, clock
):
    """As on a new master, until replicas have confirmed what the one before stored."""
    caller = make_caller(store={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    caller.topic("T")
    broker = caller.broker
    send_delayed(caller, 1)
    broker.arrivals.flush()
    again, arrivals = Deliveries(broker), Arrivals(broker.store)
    arrivals.listen((again.on_arrivals,))
    arrivals.expect_stored()
    again.find_pending()
    clock.ms += 1_000
    arrivals.flush()
    assert not again.due_ms
    broker.store.durability.flush()
    arrivals.flush()
    assert again.due_ms.keys() == {1}
    assert again.deliver(1) == 1


def test_a_topic_that_only_the_master_before_knew_is_served(caller, clock):
    send_delayed(caller, 1, topic="made-shortly-before-its-end", queueId=2)
    caller.broker.topics.delete("made-shortly-before-its-end")
    clock.ms += 1_000
    assert deliver(caller) == 1
    topic = caller.broker.topics.get("made-shortly-before-its-end")
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)


@pytest.mark.parametrize("offset", [-5, 99])
def test_offsets_outside_the_queue_are_brought_back(caller, offset):
    send_delayed(caller, 1)
    broker = caller.broker
    path = broker.store.directory.config / "delayOffset.json"
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f'{{"dataVersion":{{}},"offsetTable":{{1:{offset}}}}}')
    deliveries = Deliveries(broker)
    deliveries.offsets.load()
    deliveries.find_pending()
    assert deliveries.offsets.get(1) == max(0, min(offset, 1))


def test_versions_of_the_table(caller, deliveries):
    before = deliveries.offsets.data_version.counter
    for offset in range(400):
        deliveries.offsets.set(1, offset)
    assert deliveries.offsets.data_version.counter == before + 2


@pytest.fixture
def live(open_broker, make_caller_of):
    """A caller whose broker lives in trio's time; use it inside the run."""

    def make(**options):
        return make_caller_of(open_broker(clock=TrioClock(), **options))

    return make


def test_an_idle_service_never_wakes(live):
    looks = []

    async def main():
        caller = live()
        deliveries = caller.find(Deliveries)
        deliveries.deliver = looks.append
        with trio.move_on_after(100_000):
            async with trio.open_nursery() as nursery:
                for service in caller.services("schedule"):
                    nursery.start_soon(service)
                await trio.sleep(1)
                caller.send()
                caller.report_arrivals()
                await trio.sleep_forever()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert not looks


def test_messages_of_all_levels_come_at_their_time(live):
    seen = []

    async def main():
        caller = live()
        deliveries = caller.find(Deliveries)
        levels = (3, 1, 2, 1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.run)
            await trio.sleep(5)
            for level in levels:
                send_delayed(caller, level, str(level).encode())
            caller.report_arrivals()
            sent_ms = caller.broker.clock.now_ms()
            await trio.sleep(15)
            nursery.cancel_scope.cancel()
        seen.extend((r.body, r.store_timestamp - sent_ms) for r in records(caller))

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [body for body, _ in seen] == [b"1", b"1", b"2", b"3"]
    for (_, late), due in zip(seen, (1_000, 1_000, 5_000, 10_000), strict=True):
        assert due <= late <= due + 20


def test_delivery_goes_on_after_a_refusal(live, monkeypatch):
    async def main():
        caller = live()
        deliveries, store = caller.find(Deliveries), caller.broker.store
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.run)
            send_delayed(caller, 1)
            caller.report_arrivals()
            store.durability.refuse(RefusalKind.DISK_FULL, "the disk is full")
            await trio.sleep(5)
            store.disk.update_refusal()
            assert bodies(caller) == []
            await trio.sleep(7)
            assert bodies(caller) == [b"later"]
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


def test_others_run_after_each_batch_and_levels_take_turns(live):
    turns = []

    async def main():
        caller = live()
        deliveries = caller.find(Deliveries)
        for number in range(5 * BATCH):
            send_delayed(caller, 1 + number % 2)
        await trio.sleep(10)
        deliver = deliveries.deliver

        def noted(level):
            turns.append((level, caller.broker.store.reads.max_offset("Other", 0)))
            return deliver(level)

        deliveries.deliver = noted
        caller.topic("Other")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.run)
            while len(records(caller)) < 5 * BATCH:
                caller.send(topic="Other")
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [level for level, _ in turns[:6]] == [1, 2, 1, 2, 1, 2]
    sent = [sends for _, sends in turns]  # of two tasks one may be last, then first
    assert all(after > before for before, after in zip(sent, sent[2:], strict=False))


def test_the_table_is_saved_after_a_change(live):
    async def main():
        caller = live(flush_delay_offset_interval_ms=2_000)
        path = caller.broker.store.directory.config / "delayOffset.json"
        tables = caller.registered.tables
        ((offsets, interval_s),) = [
            each for each in tables if each[0].file_name == "delayOffset.json"
        ]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(save_changes, offsets, interval_s)
            for service in caller.services("schedule"):
                nursery.start_soon(service)
            send_delayed(caller, 1)
            caller.report_arrivals()
            with trio.fail_after(1_000):
                while not path.exists():  # noqa: ASYNC110 - a thread writes it
                    await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        assert json.loads(path.read_text())["offsetTable"] == {"1": 1}

    trio.run(main, clock=MockClock(rate=100))
