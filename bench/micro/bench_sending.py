"""Room for messages, and the end of a delivery."""

from rmq._fastpath.client.messages import SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq._fastpath.client.sending import FirstAttempt, PendingDeliveries, SendBudget


def bench_room(benchmark):
    budget = SendBudget(10, 1_000)

    def once():
        budget.try_acquire(128)
        budget.release(128)

    benchmark(once)


def bench_deliveries(benchmark):
    budget = SendBudget(10, 1_000)
    packed = PackedMessage("T", "id", b"", bytes(128), 0, True)
    result = SendResult(0, "id", "offset id", None, 7)
    open_ = PendingDeliveries(budget, lambda: None, print, lambda: None)

    def once():
        budget.try_acquire(128)
        FirstAttempt(open_.begin(packed), print, 0, None).set_result(result)

    benchmark(once)
