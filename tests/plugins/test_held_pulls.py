"""Long polling: what ends a pull in waiting, and what it then answers."""

import pytest
import trio

import rmq_plugins.pull
from rmq.protocol.message import decode_stored
from rmq_plugins.pull import held_pulls
from rmq_plugins.pull.handler import pulls_of

SUSPEND = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


@pytest.fixture
def held(caller):
    return pulls_of(caller.broker).held


@pytest.fixture
def arrive(caller):
    """Return a function that reports the queues touched so far, as a drain does."""
    listeners = rmq_plugins.pull.rmq_arrival_listeners(caller.broker)
    caller.broker.arrivals.listen(tuple(listeners))
    return caller.broker.arrivals.flush


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
    assert caller.pull(sysFlag=4, suspendTimeoutMillis=15_000).code == 19
    assert held.statistics().waiting == 0


def test_no_waiting_for_a_oneway_pull(caller, held):
    caller.pull(**SUSPEND, oneway=True)
    assert held.statistics().waiting == 0


@pytest.mark.parametrize("offset", [5, -1])
def test_wrong_offsets_do_not_wait(caller, held, offset):
    caller.send()
    assert caller.pull(offset=offset, **SUSPEND).code == 21
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
    assert answer.code == 19
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
    for forget in caller.broker.on_close:
        forget(caller.connection)
    statistics = held.statistics()
    assert (statistics.waiting, statistics.queues, statistics.dropped) == (0, 0, 2)
    caller.send()
    arrive()
    assert caller.connection.sent == []


def test_stop_answers_all_of_them(caller, held):
    caller.pull(**SUSPEND)
    caller.pull(queueId=1, **SUSPEND)
    for end in caller.broker.on_stop:
        end()
    assert [answer.code for answer in caller.connection.sent] == [19, 19]
    assert held.statistics().waiting == 0
    assert caller.pull(**SUSPEND).code == 2


def test_full_queue_is_refused(caller, held, monkeypatch):
    monkeypatch.setattr(held_pulls, "MAX_PER_QUEUE", 2)
    caller.pull(**SUSPEND)
    caller.pull(**SUSPEND)
    answer = caller.pull(**SUSPEND)
    assert answer.code == 2
    assert answer.remark.startswith("[OVERLOAD]system busy")
    assert "T queue 0" in answer.remark
    assert caller.pull(queueId=1, **SUSPEND) is None
    assert held.statistics().refused == 1


def test_full_table_is_refused(caller, held, monkeypatch):
    monkeypatch.setattr(held_pulls, "MAX_TOTAL", 1)
    caller.pull(**SUSPEND)
    assert caller.pull(queueId=1, **SUSPEND).code == 2
    assert held.statistics() == (1, 1, 1, 1, 0, 0, 0)


def test_heavy_pulls_are_refused(caller, held, monkeypatch):
    monkeypatch.setattr(held_pulls, "MAX_SIZE", 10_000)
    assert caller.pull(nonsense="x" * 9_000, **SUSPEND) is None
    assert caller.pull(nonsense="x" * 9_000, **SUSPEND).code == 2
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
    pulls_of(caller.broker).held.sweep()
    assert [answer.code for answer in caller.connection.sent] == [19]


@pytest.mark.parametrize(
    ("options", "interval_s"), [({}, 5), ({"long_polling_enable": False}, 1)]
)
async def test_service_sweeps(make_caller, clock, autojump_clock, options, interval_s):
    caller = make_caller(**options)
    caller.pull(sysFlag=6, suspendTimeoutMillis=0)
    clock.ms += 1_000
    (service,) = rmq_plugins.pull.rmq_services(caller.broker)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service)
        await trio.sleep(interval_s - 0.01)
        assert caller.connection.sent == []
        await trio.sleep(0.02)
        assert len(caller.connection.sent) == 1
        nursery.cancel_scope.cancel()
