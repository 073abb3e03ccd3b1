"""Leases without I/O: acks, renewals, lost connections, brokers that forget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core import leases as module
from rmq.client.core.leases import Arrival, Lease, Leases
from rmq.client.core.pop import ReceiptHandle
from rmq.protocol.codes import RequestCode
from rmq.protocol.handles import PopHandle
from rmq.protocol.headers.pop import ChangeInvisibleTimeResponseHeader

VISIBILITY_S = 60.0


def handle(offset, pop_ms=1):
    return ReceiptHandle(PopHandle(0, pop_ms, 60_000, 2, "0", "b"), 0, offset)


def lease(number, *, now_s=0.0, pop_ms=1, group="G"):
    tag = f"{number}-{pop_ms}"
    given = handle(number, pop_ms)
    return Lease(tag, f"id-{number}", "T", group, given, now_s + VISIBILITY_S)


def changed(pop_ms):
    return ChangeInvisibleTimeResponseHeader(
        pop_time=pop_ms, invisible_time=60_000, revive_qid=3
    )


def test_acks_of_one_turn_are_one_request():
    leases = Leases(VISIBILITY_S)
    for number in range(3):
        assert leases.add(lease(number)) is Arrival.NEW
        leases.settle(f"{number}-1")
    (request,) = leases.take_acks("b", 1.0)
    assert request.command.code == RequestCode.BATCH_ACK_MESSAGE
    assert len(request.leases) == 3
    assert leases.owes_acks
    leases.confirm(request)
    assert not leases.owes_acks


def test_a_lost_connection_sends_acks_again():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    leases.settle("1-1")
    assert len(leases.take_acks("b", 1.0)) == 1
    assert leases.take_acks("b", 1.0) == []
    leases.on_connection_lost()
    assert len(leases.take_acks("b", 1.0)) == 1


def test_an_expired_lease_is_not_acknowledged():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    leases.settle("1-1")
    assert leases.take_acks("b", VISIBILITY_S + 1) == []
    assert not leases.owes_acks


def test_a_message_that_comes_again_while_it_is_held_gets_its_new_handle():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    again = lease(1, now_s=70.0, pop_ms=2)
    assert leases.add(again) is Arrival.HELD
    held = leases.find("1-1")
    assert held.handle == again.handle
    leases.settle("1-1")
    (request,) = leases.take_acks("b", 71.0)
    assert request.leases == [held]


def test_a_message_that_comes_again_after_its_ack_is_acknowledged_again():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    leases.settle("1-1")
    leases.confirm(leases.take_acks("b", 1.0)[0])
    assert leases.add(lease(1, pop_ms=2)) is Arrival.SETTLED
    (request,) = leases.take_acks("b", 1.0)
    assert request.leases[0].handle == handle(1, pop_ms=2)


def test_groups_have_messages_of_their_own():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    assert leases.add(lease(1, group="H", pop_ms=2)) is Arrival.NEW


def test_renewals_begin_when_a_third_of_the_time_has_passed():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    assert leases.begin_renewals(19.0) == []
    (due,) = leases.begin_renewals(21.0)
    assert leases.begin_renewals(22.0) == []  # its answer is missing
    leases.end_renewal(due, changed(9), 21.0)
    assert due.expires_s == 81.0
    assert due.handle.checkpoint.pop_ms == 9
    assert due.handle.checkpoint.revive_queue == 3


def test_an_ack_waits_for_the_handle_of_a_renewal():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    (due,) = leases.begin_renewals(30.0)
    leases.settle("1-1")
    assert leases.take_acks("b", 31.0) == []
    leases.end_renewal(due, changed(9), 30.0)
    (request,) = leases.take_acks("b", 31.0)
    assert "9" in request.command.ext_fields["extraInfo"].split()


def test_an_expired_lease_is_not_renewed_and_stays_held():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    assert leases.begin_renewals(VISIBILITY_S) == []
    assert leases.find("1-1") is not None


def test_released_messages_are_new_when_they_come_again():
    leases = Leases(VISIBILITY_S)
    leases.add(lease(1))
    assert [each.tag for each in leases.release(["1-1", "unknown"])] == ["1-1"]
    assert leases.add(lease(1, pop_ms=2)) is Arrival.NEW


def test_settled_messages_are_limited(monkeypatch):
    monkeypatch.setattr(module, "MAX_SETTLED", 2)
    leases = Leases(VISIBILITY_S)
    for number in range(3):
        leases.add(lease(number))
        leases.settle(f"{number}-1")
    assert leases.statistics()["settled"] == 2
    assert leases.add(lease(0, pop_ms=2)) is Arrival.NEW


class Broker:
    """A broker that forgets: each message is visible, held or acknowledged."""

    def __init__(self, count):
        self.expires = dict.fromkeys(range(count), 0.0)
        self.acked = set()
        self.pops = 0

    def pop(self, now_s):
        for number, expires_s in self.expires.items():
            if number not in self.acked and expires_s <= now_s:
                self.pops += 1
                self.expires[number] = now_s + VISIBILITY_S
                return lease(number, now_s=now_s, pop_ms=self.pops)
        return None

    def forget(self, number):
        """What a kill does to acks and hand-outs that were not saved."""
        self.expires[number] = 0.0
        self.acked.discard(number)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pop", "settle", "acks", "lost acks", "renew", "forget"]),
        st.integers(0, 4),
    ),
    max_size=60,
)


@given(STEPS)
def test_no_message_is_worked_on_twice_or_forgotten(steps):
    broker, leases = Broker(5), Leases(VISIBILITY_S)
    now_s, worked, running = 1.0, [], {}

    def pop():
        popped = broker.pop(now_s)
        if popped is not None and leases.add(popped) is Arrival.NEW:
            number = int(popped.key[2].removeprefix("id-"))
            worked.append(number)
            running[number] = popped.tag

    def send_acks(*, is_lost):
        for request in leases.take_acks("b", now_s):
            for each in request.leases:
                broker.acked.add(int(each.key[2].removeprefix("id-")))
            if not is_lost:
                leases.confirm(request)
        if is_lost:
            leases.on_connection_lost()

    def end():
        if running:
            leases.settle(running.pop(min(running)))

    for step, number in steps:
        now_s += 1.0
        if step == "pop":
            pop()
        elif step == "settle":
            end()
        elif step == "renew":
            for due in leases.begin_renewals(now_s):
                leases.end_renewal(due, changed(100), now_s)
        elif step == "forget":
            broker.forget(number)
        else:
            send_acks(is_lost=step == "lost acks")
    for _ in range(30):
        now_s += VISIBILITY_S / 10
        pop()
        end()
        send_acks(is_lost=False)
    assert sorted(worked) == [0, 1, 2, 3, 4]
    assert broker.acked == {0, 1, 2, 3, 4}
    assert len(leases) == 0


@pytest.mark.parametrize("count", [0, 1])
def test_statistics_count_each_state(count):
    leases = Leases(VISIBILITY_S)
    for number in range(count):
        leases.add(lease(number))
    assert leases.statistics()["held"] == len(leases) == count
