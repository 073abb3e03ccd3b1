"""Nobody overtakes, no limit is crossed, nobody waits for nothing; first attempts."""

from types import SimpleNamespace

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.client.messages import Delivery, SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import (
    Accumulator,
    DirectSends,
    EndCounter,
    FirstAttempt,
    PendingDeliveries,
    RoundRobin,
    SendBudget,
    ThreadDelivery,
    send_packed,
)
from rmq.client.core.batches import ITEM_SIZE, BatchLimits
from rmq.core.errors import PeerClosed

RESULT = SendResult(0, "id", "offset id", None, 7)


class Waiting:
    def __init__(self, number):
        self.number = number
        self.is_done = False

    def done(self):
        return self.is_done

    def set_result(self, _):
        self.is_done = True


SIZES = st.integers(0, 60)
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "give", "give up"]), SIZES, st.integers(0, 9)),
    max_size=40,
)


@given(STEPS, st.integers(1, 5), st.integers(1, 100))
def test_any_order(steps, max_count, max_bytes):
    budget = SendBudget(max_count, max_bytes)
    held, waiting, served = [], [], []
    for number, (step, size, index) in enumerate(steps):
        if step == "take":
            had_waiting = bool(waiting)
            if budget.try_acquire(size):
                assert not had_waiting
                held.append(size)
            else:
                waiter = Waiting(number)
                budget.wait(waiter, size)
                waiting.append((waiter, size))
        elif step == "give" and held:
            budget.release(held.pop(index % len(held)))
        elif step == "give up" and waiting:
            waiter, _ = waiting.pop(index % len(waiting))
            waiter.is_done = True
            budget.serve()
        while waiting and waiting[0][0].done():
            waiter, size = waiting.pop(0)
            served.append(waiter.number)
            held.append(size)
        assert not any(waiter.done() for waiter, _ in waiting)
        assert budget.count == len(held) <= max_count
        assert budget.bytes == sum(held)
        assert budget.bytes <= max_bytes or len(held) == 1
        assert held or not waiting
    assert served == sorted(served)


def test_deliveries_give_their_room_back():
    budget, failures, idle = SendBudget(10, 1_000), [], []
    packed = PackedMessage("T", "id", b"", bytes(100), 0, True)
    open_ = PendingDeliveries(budget, None, failures.append, lambda: idle.append(1))
    deliveries = []
    for _ in range(3):
        is_acquired = budget.try_acquire(packed.size)
        assert is_acquired
        deliveries.append(open_.begin(packed))
    assert (open_.count, budget.bytes) == (3, 300)
    again = []

    def retry(*what):
        again.append(what)

    FirstAttempt(deliveries[0], retry, 70, "a target").set_result(RESULT)
    FirstAttempt(deliveries[1], retry, 70, "a target").set_result("a refusal")
    assert deliveries[0].result() is RESULT
    assert again == [(deliveries[1], "a refusal", 70, "a target")]
    assert (open_.count, budget.count, idle) == (2, 2, [])
    error = ValueError("lost")
    deliveries[1].set_exception(error)
    open_.end_many(1, 100)
    assert failures == [error]
    assert (open_.count, budget.count, budget.bytes, idle) == (0, 0, 0, [1])


class Attempts(DirectSends):
    """A sender; its test says whether it is ready."""

    def __init__(self, line=None):
        self.calls = []
        self.targets_by_topic, self.connections = {}, {}
        if line is not None:
            self.targets_by_topic["T"] = SimpleNamespace(
                choice=RoundRobin([line], 0), targets=[line]
            )
            self.connections[line.address] = line

    async def send(self, packed, timeout_ms):
        await trio.lowlevel.checkpoint()
        self.calls.append("send")
        return RESULT

    async def retry(self, packed, deadline_ms, target, answer):
        await trio.lowlevel.checkpoint()
        self.calls.append(answer)
        return RESULT


class Line:
    """A connection."""

    single, address, broker, is_open = None, "b:1", "b", True

    def __init__(self, answer):
        self.answer, self.forgotten, self.codec = answer, [], self

    def new_waiter(self):
        return self

    def send(self, *_):
        return 7

    def cancel(self, number):
        self.forgotten.append(number)

    def __await__(self):
        return self._wait().__await__()

    async def _wait(self):
        await trio.lowlevel.checkpoint()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


LOST = PeerClosed("lost")


@pytest.mark.parametrize(
    ("answer", "calls"),
    [(None, ["send"]), (RESULT, []), ("refusal", ["refusal"]), (LOST, [LOST])],
)
async def test_the_first_attempt_is_made_at_once(answer, calls):
    line = Line(answer)
    ways = Attempts(line)
    line.is_open = answer is not None
    budget = SendBudget(1, 1_000)
    packed = PackedMessage("T", "id", b"", bytes(100), 0, True)
    found = await send_packed(ways, budget, packed, None, 3_000)
    assert found is RESULT
    assert ways.calls == calls
    assert line.forgotten == ([] if answer is None else [7])
    assert budget.count == 0


async def test_a_cancelled_first_attempt_gives_its_room_back():
    line, budget = Line(RESULT), SendBudget(1, 1_000)
    ways = Attempts(line)
    with trio.CancelScope() as scope:
        scope.cancel()
        packed = PackedMessage("T", "id", b"", b"", 0, True)
        await send_packed(ways, budget, packed, None, 3_000)
    assert line.forgotten == [7]
    assert budget.count == 0


LIMITS = st.builds(BatchLimits, st.integers(1, 5), st.integers(30, 200))


def check(batch, limits):
    assert 0 < len(batch) <= limits.max_count
    size = sum(size + ITEM_SIZE for _, size in batch)
    assert len(batch) == 1 or size <= limits.max_bytes


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 8), st.booleans())), LIMITS
)
def test_messages_gather(steps, limits):
    gathering = Accumulator(limits, 10)
    now_ms, added, left = 0.0, {}, []
    for number, (size, pause_ms, is_withdrawn) in enumerate(steps):
        now_ms += pause_ms
        due = [gathering.pop_due(now_ms)]
        added[number, size] = now_ms
        full = gathering.add((number, size), size, lambda now_ms=now_ms: now_ms)
        for batch in filter(None, [*due, *full]):
            check(batch, limits)
            assert all(now_ms - added[each] <= 10 + 8 for each in batch)
            left += batch
        if is_withdrawn:
            was_there = (number, size) not in left
            is_found = gathering.withdraw((number, size), size)
            assert is_found == was_there
            if was_there:
                del added[number, size]
        assert gathering.leaves_at_ms is None or gathering.leaves_at_ms > now_ms
    left += gathering.pop()
    assert left == list(added)
    assert gathering.leaves_at_ms is None
    assert gathering.pop_due(1e9) == []


def test_ends_are_counted_once_a_turn():
    firsts = []
    ends = EndCounter(lambda: firsts.append(1))
    deliveries = [ThreadDelivery(lambda *_: False, ends) for _ in range(3)]
    with pytest.raises(TimeoutError, match=r"no result within 0\.5 s"):
        deliveries[0].result(0.5)
    for each in deliveries[:2]:
        each.end(ValueError("wrong"))
    assert deliveries[0].done()
    assert (firsts, ends.reset()) == ([1], 2)
    with pytest.raises(ValueError, match="wrong"):
        deliveries[1].result()
    inner = Delivery(PackedMessage("T", "id", b"", b"", 0, True), None, None)
    inner.add_done_callback(deliveries[2].end)
    inner.set_result(RESULT)
    assert deliveries[2].result() is RESULT
    counts = [ends.reset(), ends.reset()]
    assert (firsts, counts) == ([1, 1], [1, 0])


def test_an_enqueued_message_leaves_at_once_if_it_can():
    line = Line(RESULT)
    sent = []
    line.send = lambda *args: sent.append(args)
    packed = PackedMessage("T", "id", b"p", b"b", 0, True)
    delivery = Delivery(packed, None, None)
    is_delivered = Attempts().deliver(delivery, print, 3_000)
    assert not is_delivered
    line.is_open = False
    is_delivered = Attempts(line).deliver(delivery, print, 3_000)
    assert not is_delivered
    line.is_open = True
    is_delivered = Attempts(line).deliver(delivery, print, 3_000)
    assert is_delivered
    (_, properties, body, waiter, _, msg_id, _) = sent[0]
    assert (properties, body, msg_id) == (b"p", b"b", "id")
    waiter.set_result(RESULT)
    assert delivery.result() is RESULT
