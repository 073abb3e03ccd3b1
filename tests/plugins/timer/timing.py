"""A client that sends timed messages, recalls them and lets time pass, on a caller."""

import trio

from rmq.protocol.codes import RequestCode
from rmq_plugins.timer.deliver import Deliveries


def send_timed(caller, name="TIMER_DELAY_MS", value="5000", body=b"later", **more):
    return caller.send(
        body=body, properties=f"{name}\x01{value}\x02TAGS\x01A\x02", **more
    )


def work(caller, ms=0):
    """Let time pass, and the task do everything that is due."""
    caller.broker.clock.ms += ms
    deliveries = caller.find(Deliveries)

    async def run():
        while deliveries.enqueue_batch():
            pass
        while (slot := deliveries.due_slot()) is not None:
            await deliveries.deliver(slot)
        deliveries.enqueue_batch()

    trio.run(run)


def recall(caller, handle, topic="T", **more):
    fields = {"topic": topic, "recallHandle": handle, "producerGroup": "PG", **more}
    return caller.call(RequestCode.RECALL_MESSAGE, fields)


def flush(caller):
    for step in caller.broker.store.timer.flush_steps():
        step()
