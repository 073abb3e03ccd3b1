"""Budgets: nobody overtakes, no limit is crossed, nobody waits for nothing."""

from hypothesis import given
from hypothesis import strategies as st

from rmq.client.core.budget import Budget


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
    budget = Budget(max_count, max_bytes)
    held, waiting, served = [], [], []
    for number, (step, size, index) in enumerate(steps):
        if step == "take":
            had_waiting = bool(waiting)
            if budget.take(size):
                assert not had_waiting
                held.append(size)
            else:
                waiter = Waiting(number)
                budget.wait(waiter, size)
                waiting.append((waiter, size))
        elif step == "give" and held:
            budget.give(held.pop(index % len(held)))
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
