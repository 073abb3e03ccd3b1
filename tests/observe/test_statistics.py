"""Counts of messages in and out, over three windows of time."""

import pytest

from rmq.observe import statistics as statistics_module
from rmq.observe.statistics import BrokerStatistics
from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock

NAMES = [name for name in vars(statistics_module) if name.endswith(("_NUMS", "_SIZE"))]
HOST = host_bytes("127.0.0.1", 10_911)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(tmp_path, clock):
    config = StoreConfig(
        root_dir=str(tmp_path), commit_log_file_size=1 << 20, queue_file_size=200
    )
    opened = MessageStore.open(config, clock=clock, store_host=HOST)
    yield opened
    opened.close()


@pytest.fixture
def statistics(store, clock):
    return BrokerStatistics(store, clock, "C")


def put(store, topic="T", queue_id=0, count=1, body=b"x"):
    """Store messages; how many bytes their records have."""
    before = store.statistics().put_bytes
    for _ in range(count):
        store.writes.put(Message(topic, queue_id, body, 0, 0, 1, HOST, 0, 0, {}, ""))
    return store.statistics().put_bytes - before


def end_poll(store, statistics):
    """Report what came, as the end of a poll does."""
    statistics.on_arrivals(store.writes.end_batch())


def test_puts_are_counted_with_their_bytes(store, statistics):
    first = put(store, "T", 0, count=3, body=b"x" * 10)
    second = put(store, "T", 1, count=2, body=b"x" * 1000)
    other = put(store, "U", 0, count=25)
    end_poll(store, statistics)
    statistics.count_up()
    sums = {
        (name, key): statistics.view(name, key).stats_day.sum
        for name in NAMES
        for key, _ in totals_of(statistics, name)
    }
    assert sums == {
        ("TOPIC_PUT_NUMS", "T"): 5,
        ("QUEUE_PUT_NUMS", "T@0"): 3,
        ("QUEUE_PUT_NUMS", "T@1"): 2,
        ("BROKER_PUT_NUMS", "C"): 30,
        ("TOPIC_PUT_SIZE", "T"): first + second,
        ("QUEUE_PUT_SIZE", "T@0"): first,
        ("QUEUE_PUT_SIZE", "T@1"): second,
        ("TOPIC_PUT_NUMS", "U"): 25,
        ("QUEUE_PUT_NUMS", "U@0"): 25,
        ("TOPIC_PUT_SIZE", "U"): other,
        ("QUEUE_PUT_SIZE", "U@0"): other,
    }
    size = statistics.view("TOPIC_PUT_SIZE", "T").stats_day
    assert size.avgpt == (first + second) / 5


def test_messages_from_before_the_start_do_not_count(store, clock):
    put(store, count=4)
    store.writes.end_batch()
    statistics = BrokerStatistics(store, clock, "C")
    put(store, count=3)
    end_poll(store, statistics)
    put(store, count=2)
    end_poll(store, statistics)
    assert statistics.view("TOPIC_PUT_NUMS", "T").stats_day.sum == 5


def test_a_topic_that_begins_anew(store, statistics):
    put(store, count=5)
    end_poll(store, statistics)
    statistics.count_up()
    store.delete_topic("T")()
    put(store, count=2)
    end_poll(store, statistics)
    assert statistics.view("TOPIC_PUT_NUMS", "T").stats_day.sum == 7


def totals_of(statistics, name):
    return [each for each in statistics.totals_of(name) if each is not None]


def test_totals_are_read_in_parts(store, statistics, monkeypatch):
    """Eight lists of all items of 8,000 topics kept other clients waiting for 9 ms."""
    monkeypatch.setattr("rmq.observe.statistics.COUNTED_AT_ONCE", 2)
    for number in range(5):
        put(store, f"T{number}")
    end_poll(store, statistics)
    statistics.count_up()
    found = list(statistics.totals_of("TOPIC_PUT_NUMS"))
    assert found.count(None) >= 2
    assert dict(filter(None, found)) == {f"T{number}": 1 for number in range(5)}


def test_a_sample_counts_many_queues_in_parts(store, statistics, monkeypatch):
    monkeypatch.setattr("rmq.observe.statistics.COUNTED_AT_ONCE", 2)
    for number in range(5):
        put(store, "T", number)
    end_poll(store, statistics)
    parts = statistics.sample_parts()
    assert [next(parts, "end") for _ in range(2)] == [None, None]
    assert store.queues.tails.uncounted_count == 1
    for _ in parts:
        pass
    assert statistics.total_of("TOPIC_PUT_NUMS", "T") == 5


def test_gets_are_counted_by_pull(statistics):
    statistics.count_get("G", "T", 1, 1, 32, 6400, 200)
    statistics.count_get("G", "T", 2, 1, 8, 1600, 200)
    view = statistics.view("GROUP_GET_NUMS", "T@G").stats_minute
    assert (view.sum, view.avgpt) == (40, 20.0)
    assert statistics.view("GROUP_GET_SIZE", "T@G").stats_minute.sum == 8000
    assert statistics.view("QUEUE_GET_NUMS", "T@2@G").stats_minute.sum == 8
    assert statistics.view("BROKER_GET_NUMS", "C").stats_minute.sum == 40


def test_windows(statistics, clock):
    """100 messages in each of 8,640 intervals of 10 s, then nothing."""
    for _ in range(8_640):
        statistics.count_get("G", "T", 0, 1, 100, 1, 200)
        clock.ms += 10_000
        statistics.sample()
    view = statistics.view("GROUP_GET_NUMS", "T@G")
    assert (view.stats_minute.sum, view.stats_minute.tps) == (600, 10.0)
    assert (view.stats_hour.sum, view.stats_hour.tps) == (36_000, 10.0)
    assert (view.stats_day.sum, view.stats_day.tps) == (864_000, 10.0)
    for _ in range(6):
        clock.ms += 10_000
        statistics.sample()
    view = statistics.view("GROUP_GET_NUMS", "T@G")
    assert view.stats_minute.sum == 0
    assert view.stats_hour.sum > 30_000
    assert statistics.minute_rate("GROUP_GET_NUMS", "T@G") == 0.0


def test_a_young_item_is_not_fast(statistics):
    statistics.count_send_back("G", "T")
    view = statistics.view("SNDBCK_PUT_NUMS", "T@G").stats_minute
    assert (view.sum, view.tps) == (1, 0.1)


def test_items_idle_for_a_day_are_dropped(statistics, clock):
    statistics.count_send_back("Old", "T")
    for round_ in range(26 * 360):
        if round_ == 5_000:
            statistics.count_get("G", "T", 0, 1, 1, 1, 200)
        clock.ms += 10_000
        statistics.sample()
    assert statistics.view("SNDBCK_PUT_NUMS", "T@Old") is None
    assert statistics.view("GROUP_GET_NUMS", "T@G").stats_day.sum == 1
    statistics.count_get("G", "T", 0, 1, 1, 1, 200)
    assert statistics.view("GROUP_GET_NUMS", "T@G").stats_day.sum == 2


def test_what_is_deleted_is_forgotten(store, statistics):
    put(store)
    end_poll(store, statistics)
    statistics.count_get("G", "T", 0, 1, 1, 1, 200)
    statistics.count_get("G", "U", 0, 1, 1, 1, 200)
    statistics.count_get("H", "U", 0, 1, 1, 1, 200)
    statistics.count_up()
    list(statistics.remove_topic("T"))
    list(statistics.remove_group("H"))
    keys = {key for name in NAMES for key, _ in totals_of(statistics, name)}
    assert keys == {"C", "U@G", "U@0@G"}


def test_topics_and_groups_have_their_sums(statistics, clock):
    """A view of a group with ten thousand topics asks for one number."""
    statistics.count_get("G", "T", 0, 1, 30, 1, 200)
    statistics.count_get("G", "U", 0, 1, 6, 1, 200)
    statistics.count_get("H", "U", 0, 1, 3, 1, 200)
    statistics.count_send_back("G", "T")
    statistics.count_send_back("G", "U")
    assert statistics.minute_rate("GROUP_OUT", "@G") == 3.6
    assert statistics.minute_rate("TOPIC_OUT", "U") == 0.9
    assert statistics.minute_rate("GROUP_AGAIN", "@G") == 0.2
    list(statistics.remove_topic("T"))
    statistics.count_get("G", "T", 0, 1, 4, 1, 200)
    assert statistics.total_of("GROUP_OUT", "@G") == 40
    assert statistics.total_of("TOPIC_OUT", "T") == 4
    list(statistics.remove_group("G"))
    statistics.count_get("G", "U", 0, 1, 5, 1, 200)
    assert statistics.total_of("GROUP_OUT", "@G") == 5
    assert statistics.total_of("TOPIC_OUT", "U") == 14


def test_a_group_idle_for_a_day_keeps_its_sums(statistics, clock):
    statistics.count_get("G", "T", 0, 1, 7, 1, 200)
    for _ in range(26 * 360):
        clock.ms += 10_000
        statistics.sample()
    assert statistics.view("TOPIC_OUT", "T") is None
    statistics.count_get("G", "T", 0, 1, 2, 1, 200)
    assert statistics.total_of("GROUP_OUT", "@G") == 9
    assert statistics.total_of("TOPIC_OUT", "T") == 2


def test_items_are_limited(statistics, monkeypatch):
    monkeypatch.setattr("rmq.observe.statistics.ITEM_LIMIT", 6)  # and one of the group
    for number in range(10):
        statistics.count_send_back("G", f"T{number}")
    assert statistics.view("SNDBCK_PUT_NUMS", "T4@G") is not None
    assert statistics.view("SNDBCK_PUT_NUMS", "T5@G") is None


def test_each_topic_has_its_rates_beside_many_queues(store, statistics, monkeypatch):
    """Items of queues have a limit of their own: 2,500 topics filled the common one."""
    monkeypatch.setattr("rmq.observe.statistics.QUEUE_ITEM_LIMIT", 6)
    for number in range(20):
        put(store, f"T{number % 4}", number // 4, count=2)
    end_poll(store, statistics)
    for number in range(4):
        assert statistics.view("TOPIC_PUT_NUMS", f"T{number}").stats_minute.sum == 10
    found = totals_of(statistics, "QUEUE_PUT_NUMS")
    assert [count for _, count in found] == [2, 2, 2]
    list(statistics.remove_topic("T0"))
    put(store, "T1", 4)
    end_poll(store, statistics)
    assert statistics.view("QUEUE_PUT_NUMS", "T1@4").stats_minute.sum == 1


def test_places_of_pulls_are_limited(statistics, monkeypatch):
    monkeypatch.setattr("rmq.observe.statistics.PULL_LIMIT", 4)
    for number in range(9):
        statistics.count_get("G", f"T{number}", 0, 1, 1, 1, 200 + number, token=7)
    places = [statistics.pulled_offset("G", f"T{number}", 0) for number in range(9)]
    assert places == [-1] * 5 + [205, 206, 207, 208]
    assert statistics.puller_token("G", "T8", 0) == 7
    assert statistics.view("GROUP_GET_NUMS", "T0@G").stats_minute.sum == 1


def test_a_row_given_back_is_counted_for_the_next(store, statistics, clock):
    """A new topic has nothing of the one whose row it got, in any window."""
    put(store, "Old", count=5)
    statistics.count_get("G", "Old", 0, 1, 5, 1, 200)
    end_poll(store, statistics)
    for _ in range(10):
        clock.ms += 10_000
        statistics.sample()
    list(statistics.remove_topic("Old"))
    put(store, "New", count=3)
    end_poll(store, statistics)
    clock.ms += 10_000
    assert statistics.view("TOPIC_PUT_NUMS", "New").stats_minute.sum == 3
    assert statistics.view("TOPIC_PUT_NUMS", "New").stats_minute.tps == 0.3
    statistics.count_get("G", "Old", 0, 1, 2, 1, 300)
    assert statistics.view("GROUP_GET_NUMS", "Old@G").stats_day.sum == 2
    assert statistics.view("TOPIC_PUT_NUMS", "New").stats_day.sum == 3


async def test_service_takes_notes(statistics, clock, autojump_clock, nursery):
    import trio

    statistics.count_get("G", "T", 0, 1, 6, 1, 200)
    await nursery.start(statistics.sample_regularly)
    for _ in range(8):
        clock.ms += 10_000
        await trio.sleep(10.01)
    assert statistics.view("GROUP_GET_NUMS", "T@G").stats_minute.sum == 0
    assert statistics.view("GROUP_GET_NUMS", "T@G").stats_hour.sum == 6
    nursery.cancel_scope.cancel()
