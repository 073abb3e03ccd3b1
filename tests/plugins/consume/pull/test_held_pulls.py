"""Long polling: what ends a held pull, and how it is answered then."""

import json
import time

import pytest
import trio

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.pull import PullMessageRequestHeader
from rmq.protocol.records import decode_stored
from rmq_plugins.consume.pull import held_pulls
from rmq_plugins.consume.pull.handler import PullHandler

SUSPEND = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


@pytest.fixture
def held(caller):
    return caller.find(PullHandler).held


@pytest.fixture
def arrive(caller, held):
    """Return a function that reports the queues touched so far, as a poll does."""

    def report():
        caller.broker.arrivals.flush()
        finish(held)

    return report


def finish(held):
    """Run what the first turn left."""
    while held.has_more:
        held.run_turn()


def sent_bodies(connection):
    return [
        record.body
        for answer in connection.sent
        for record in decode_stored(answer.body)
    ]


def test_pull_waits_for_a_message(caller, held, arrive):
    assert caller.pull(**SUSPEND) is None
    assert held.statistics().waiting == 1
    caller.send(body=b"news")
    arrive()
    (answer,) = caller.connection.sent
    assert (answer.code, answer.opaque) == (0, 1)
    assert sent_bodies(caller.connection) == [b"news"]
    statistics = held.statistics()
    assert (statistics.waiting, statistics.queues, statistics.woken) == (0, 0, 1)


def test_no_waiting_without_the_flag(caller, held):
    assert (
        caller.pull(sysFlag=4, suspendTimeoutMillis=15_000).code
        == ResponseCode.PULL_NOT_FOUND
    )
    assert held.statistics().waiting == 0


def test_no_waiting_for_a_oneway_pull(caller, held):
    caller.pull(**SUSPEND, oneway=True)
    assert held.statistics().waiting == 0


@pytest.mark.parametrize("offset", [5, -1])
def test_wrong_offsets_do_not_wait(caller, held, offset):
    caller.send()
    assert caller.pull(offset=offset, **SUSPEND).code == ResponseCode.PULL_OFFSET_MOVED
    assert held.statistics().waiting == 0


def test_other_queues_do_not_wake(caller, held, arrive):
    caller.pull(**SUSPEND)
    caller.send(queueId=1)
    arrive()
    assert caller.connection.sent == []
    assert held.statistics().waiting == 1


def test_other_tags_do_not_wake(caller, held, arrive):
    caller.pull(subscription="A", **SUSPEND)
    caller.send(properties="TAGS\x01B\x02")
    arrive()
    assert caller.connection.sent == []
    caller.send(body=b"mine", properties="TAGS\x01A\x02")
    arrive()
    (answer,) = caller.connection.sent
    assert sent_bodies(caller.connection) == [b"mine"]
    assert answer.ext_fields["nextBeginOffset"] == "2"


def test_time_over_moves_past_what_did_not_match(caller, clock, held, arrive):
    caller.pull(subscription="A", **SUSPEND)
    caller.send(properties="TAGS\x01B\x02")
    arrive()
    clock.ms += 15_000
    held.sweep()
    (answer,) = caller.connection.sent
    assert (answer.code, answer.remark) == (19, "OFFSET_OVERFLOW_ONE")
    assert answer.ext_fields["nextBeginOffset"] == "1"


def test_time_over_answers_not_found_with_offsets_of_now(caller, clock, held):
    caller.pull(**SUSPEND)
    clock.ms += 14_999
    held.sweep()
    assert caller.connection.sent == []
    clock.ms += 1
    held.sweep()
    (answer,) = caller.connection.sent
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["maxOffset"] == "0"
    assert held.statistics().expired == 1


def test_offset_is_committed_on_the_first_execution_only(caller, arrive):
    caller.pull(sysFlag=7, suspendTimeoutMillis=15_000, commitOffset=0)
    caller.broker.offsets.commit("other", "G", "T", 0, 5)
    caller.send()
    arrive()
    assert caller.broker.offsets.query("G", "T", 0) == 5


def test_checks_run_again_when_woken(caller, arrive):
    caller.pull(**SUSPEND)
    caller.send()
    caller.topic("T", perm=2)
    arrive()
    (answer,) = caller.connection.sent
    assert (answer.code, answer.ext_fields) == (16, {"forbiddenType": "3"})


def test_all_waiting_pulls_of_a_queue_are_woken(caller, held, arrive):
    for _ in range(5):
        caller.pull(**SUSPEND)
    caller.send()
    arrive()
    assert [answer.opaque for answer in caller.connection.sent] == [1, 2, 3, 4, 5]


def test_closed_connection_drops_its_pulls(caller, held, arrive):
    caller.pull(**SUSPEND)
    caller.pull(queueId=1, **SUSPEND)
    for forget in caller.registered.on_close:
        forget(caller.connection)
    statistics = held.statistics()
    assert (statistics.waiting, statistics.queues, statistics.dropped) == (0, 0, 2)
    caller.send()
    arrive()
    assert caller.connection.sent == []


def test_stop_answers_all_of_them(caller, held):
    caller.pull(**SUSPEND)
    caller.pull(queueId=1, **SUSPEND)
    for end in caller.registered.on_stop:
        end()
    assert [answer.code for answer in caller.connection.sent] == [19, 19]
    assert held.statistics().waiting == 0
    assert caller.pull(**SUSPEND).code == ResponseCode.SYSTEM_BUSY


def test_full_queue_is_refused(make_caller):
    caller = make_caller(max_held_pulls_per_queue=2)
    held = caller.find(PullHandler).held
    caller.pull(**SUSPEND)
    caller.pull(**SUSPEND)
    answer = caller.pull(**SUSPEND)
    assert answer.code == ResponseCode.SYSTEM_BUSY
    assert answer.remark.startswith("[OVERLOAD]system busy")
    assert "T queue 0" in answer.remark
    assert caller.pull(queueId=1, **SUSPEND) is None
    assert held.statistics().refused == 1


@pytest.mark.parametrize(
    "option",
    ["max_held_pulls", "max_held_pulls_per_connection", "max_held_pulls_per_group"],
)
def test_full_table_is_refused(make_caller, option):
    caller = make_caller(**{option: 1})
    held = caller.find(PullHandler).held
    caller.pull(**SUSPEND)
    assert caller.pull(queueId=1, **SUSPEND).code == ResponseCode.SYSTEM_BUSY
    assert held.statistics() == (1, 1, 1, 1, 0, 0, 0)


def test_heavy_pulls_are_refused(caller, held, monkeypatch):
    monkeypatch.setattr(held_pulls, "MAX_SIZE", 10_000)
    assert caller.pull(nonsense="x" * 9_000, **SUSPEND) is None
    assert caller.pull(nonsense="x" * 9_000, **SUSPEND).code == ResponseCode.SYSTEM_BUSY
    held.drop(caller.connection)
    assert caller.pull(nonsense="x" * 9_000, **SUSPEND) is None


@pytest.mark.parametrize("wanted", [2**62, 700_000])
def test_nobody_waits_for_ever(caller, clock, held, wanted):
    caller.pull(sysFlag=6, suspendTimeoutMillis=wanted)
    clock.ms += held_pulls.MAX_SUSPEND_MS
    held.sweep()
    assert len(caller.connection.sent) == 1


def test_negative_time_ends_at_the_next_sweep(caller, held):
    assert caller.pull(sysFlag=6, suspendTimeoutMillis=-5) is None
    held.sweep()
    assert len(caller.connection.sent) == 1


def test_short_polling_holds_for_its_own_time(make_caller, clock):
    caller = make_caller(long_polling_enable=False, short_polling_time_mills=1_000)
    caller.pull(**SUSPEND)
    clock.ms += 1_000
    caller.find(PullHandler).held.sweep()
    assert [answer.code for answer in caller.connection.sent] == [19]


def test_one_connection_or_group_leaves_places_to_others(make_caller, make_connection):
    caller = make_caller(max_held_pulls_per_connection=2, max_held_pulls_per_group=3)
    other = make_connection()
    assert [caller.pull(**SUSPEND) for _ in range(2)] == [None, None]
    assert caller.pull(**SUSPEND).code == ResponseCode.SYSTEM_BUSY
    assert caller.pull(**SUSPEND, connection=other) is None
    assert caller.pull(**SUSPEND, connection=other).code == ResponseCode.SYSTEM_BUSY
    assert caller.pull(**SUSPEND, connection=other, consumerGroup="H") is None
    for forget in caller.registered.on_close:
        forget(caller.connection)
    assert caller.pull(**SUSPEND, connection=make_connection()) is None


@pytest.fixture
def sweeps(caller, clock, monkeypatch):
    """Return when the service swept; the clock of the broker follows that of trio."""
    held, times = caller.find(PullHandler).held, []
    zero_ms, sweep = clock.ms, held.sweep

    def swept():
        times.append(round(trio.current_time(), 1))
        sweep()

    monkeypatch.setattr(held, "sweep", swept)
    for each in (held, held.alarm):
        monkeypatch.setattr(
            each, "_now_ms", lambda: zero_ms + round(trio.current_time() * 1_000)
        )
    return times


async def test_the_service_wakes_when_a_pull_ends(
    caller, sweeps, nursery, autojump_clock
):
    """Once for each end; a pull that ends sooner than all others is not late."""
    (service, *_) = caller.services("pull")
    nursery.start_soon(service)
    await trio.sleep(100)
    assert sweeps == []
    caller.pull(sysFlag=6, suspendTimeoutMillis=120_000)
    caller.pull(sysFlag=6, suspendTimeoutMillis=110_000)
    await trio.sleep(5)
    caller.pull(sysFlag=6, suspendTimeoutMillis=107_000)
    await trio.sleep(20)
    assert sweeps == [107, 110, 120]
    assert len(caller.connection.sent) == 3
    await trio.sleep(100)
    assert sweeps == [107, 110, 120]


async def test_a_date_that_jumps_ends_no_pull_and_delays_none(caller, clock, held):
    caller.pull(**SUSPEND)
    for jump_ms in (-86_400_000, 86_400_000):
        clock.set_back_ms += jump_ms
        held.sweep()
        assert caller.connection.sent == []
    clock.set_back_ms += 86_400_000
    clock.ms += 15_000
    held.sweep()
    assert [answer.code for answer in caller.connection.sent] == [19]


def test_a_changed_subscription_reads_what_the_old_one_passed_over(
    caller, clock, held, arrive
):
    """The pull waited for A while B came; since then its group wants B as well."""

    def subscribe(expression, version):
        wanted = {"topic": "T", "subString": expression, "subVersion": version}
        group = {"groupName": "G", "subscriptionDataSet": [wanted]}
        heartbeat = {"clientID": "c", "consumerDataSet": [group]}
        caller.call(34, body=json.dumps(heartbeat).encode())

    subscribe("A", 1)
    pull = {"sysFlag": 2, "suspendTimeoutMillis": 15_000, "subscription": None}
    caller.pull(**pull, subVersion=1)
    caller.connection.sent.clear()
    caller.send(body=b"b", properties="TAGS\x01B\x02")
    arrive()
    assert caller.connection.sent == []
    subscribe("A || B", 2)
    clock.ms += 15_000
    held.sweep()
    assert sent_bodies(caller.connection) == [b"b"]


def test_a_topic_that_began_anew_wakes_those_who_waited_before(caller, arrive):
    for _ in range(3):
        caller.send(properties="TAGS\x01B\x02")
    arrive()
    caller.pull(subscription="A", offset=3, **SUSPEND)
    caller.broker.store.delete_topic("T")()
    caller.send(properties="TAGS\x01B\x02")
    arrive()
    (answer,) = caller.connection.sent
    assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (21, "1")


@pytest.mark.slow
def test_no_turn_of_ten_thousand_pulls_is_a_pause(caller, clock, held, arrive):
    for _ in range(10_000):
        caller.pull(subscription="A", **SUSPEND)
    began = time.perf_counter()
    caller.send(properties="TAGS\x01B\x02")
    caller.broker.arrivals.flush()
    longest_s = time.perf_counter() - began
    clock.ms += 15_000
    began = time.perf_counter()
    held.sweep()
    longest_s = max(longest_s, time.perf_counter() - began)
    while held.has_more:
        began = time.perf_counter()
        held.run_turn()
        longest_s = max(longest_s, time.perf_counter() - began)
    assert len(caller.connection.sent) == 10_000
    assert longest_s < 0.05


class Work:
    """A held-pull table over one queue that counts what it is made to do."""

    def __init__(self, takes=True):
        self.now_ms, self.ran, self.read, self.ns = 0, 0, 0, 0
        self.codes, self.takes = {7}, takes
        self.connection = Peer()
        limits = held_pulls.HeldPullLimits(*[1_000_000] * 4)
        access = held_pulls.QueueAccess(lambda *_: 0, self.read_codes, lambda *_: None)
        self.held = held_pulls.HeldPulls(
            self.resume, access, lambda: limits, lambda: self.now_ms, self.timer_ns
        )

    def read_codes(self, topic, queue_id, first, end):
        self.read += end - first
        return self.codes

    def resume(self, pull, is_over):
        self.ran += 1
        self.ns += 50_000
        return pull.request.reply() if self.takes or is_over else None

    def timer_ns(self):
        return self.ns

    def hold(self, count, tag_codes=None):
        header = PullMessageRequestHeader(
            consumer_group="G", topic="T", queue_id=0, queue_offset=0, max_msg_nums=1,
            sys_flag=6, commit_offset=0, suspend_timeout_millis=1, sub_version=0,
        )  # fmt: skip
        for _ in range(count):
            pull = held_pulls.HeldPull(
                Command(11), header, self.connection, 15_000, tag_codes
            )
            assert self.held.hold_pull(pull)


class Peer:
    is_open = True
    answers = 0

    def send_nowait(self, answer):
        self.answers += 1


def test_pulls_whose_tags_never_match_cost_a_send_nothing():
    """10,000 of them made each send to their queue run all of them."""
    work = Work()
    work.hold(10_000, tag_codes=(1, 2))
    for end in range(1, 101):
        work.held.on_arrivals({("T", 0): end})
    assert (work.ran, work.read) == (0, 100)
    work.codes = {7, 2}
    work.held.on_arrivals({("T", 0): 101})
    assert work.ran > 0


def test_only_the_pulls_of_the_tag_that_came_run():
    work = Work()
    work.hold(1_000, tag_codes=(1,))
    work.hold(3, tag_codes=(7, 8))
    work.held.on_arrivals({("T", 0): 1})
    assert work.connection.answers == 3
    work.held.on_arrivals({("T", 0): 2})
    assert work.ran == 3


@pytest.mark.parametrize("codes", [{7}, {-(1 << 40)}])
def test_entries_that_say_nothing_of_tags_wake_all(codes):
    work = Work()
    work.codes = codes
    work.hold(5, tag_codes=(1,))
    end = 1 if codes != {7} else held_pulls.MAX_TESTED + 1
    work.held.on_arrivals({("T", 0): end})
    assert work.connection.answers == 5


@pytest.mark.parametrize("tag_codes", [None, (1,)])
def test_ten_thousand_pulls_end_in_turns(tag_codes):
    """All at once they were a pause of a quarter of a second."""
    work = Work()
    work.hold(10_000, tag_codes)
    work.now_ms = 15_000
    work.held.sweep()
    turns = 1
    assert work.ran == held_pulls.TURN_NS // 50_000
    while work.held.has_more:
        before = work.ran
        work.held.run_turn()
        assert work.ran - before <= held_pulls.TURN_NS // 50_000
        turns += 1
    assert work.connection.answers == work.ran == 10_000
    assert turns == 1_000
    assert work.held.statistics().waiting == 0


def test_an_arrival_during_a_backlog_adds_no_turn_of_its_own():
    work = Work()
    work.hold(100)
    work.held.on_arrivals({("T", 0): 1})
    ran = work.ran
    work.hold(100)
    work.held.on_arrivals({("T", 0): 2})
    assert work.ran == ran
    finish(work.held)
    assert work.connection.answers == 200


def test_pulls_that_find_nothing_wait_on_and_end_in_time():
    work = Work(takes=False)
    work.hold(30)
    work.held.on_arrivals({("T", 0): 1})
    finish(work.held)
    assert (work.ran, work.connection.answers) == (30, 0)
    work.now_ms = 15_000
    work.held.on_arrivals({("T", 0): 2})
    work.held.sweep()
    finish(work.held)
    assert work.connection.answers == 30
    assert work.held.statistics().waiting == 0


def test_a_connection_with_many_pulls_closes_in_turns():
    work = Work()
    work.hold(100, tag_codes=(1,))
    work.held.drop(work.connection)
    finish(work.held)
    assert work.held.statistics() == (0, 0, 100, 0, 0, 0, 100)
    assert work.ran == 0
